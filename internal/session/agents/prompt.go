package agents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/findtool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// systemPrompt appends facts about the agent's place and the project's instructions to the
// agent's own instructions. Its bytes are the same during the whole session, so that it stays a
// cacheable prefix.
func (s *Set) systemPrompt(def subagent.Definition, me Caller) string {
	git, system := "no", goruntime.GOOS
	if _, err := os.Stat(filepath.Join(me.Cwd, ".git")); err == nil || me.workspace != nil && me.workspace.Git {
		git = "yes"
	}
	if me.workspace != nil {
		system = me.workspace.System
	}
	text := strings.TrimSpace(def.Prompt) + "\n\n" + excerpt.Element("environment", fmt.Sprintf(
		"Working folder: %s\nGit repository: %s\nSystem: %s\nDate: %s",
		excerpt.ExactLine(me.Cwd), git, excerpt.Line(system, 60), s.Info.StartTime.Format(time.DateOnly)))
	text += me.teammate.brief(s.leader(me))
	if notes := s.cfg.Notes; notes != "" && !def.OmitNotes {
		text += "\n\n" + notes
	}
	return text
}

// The lists of which agents are reminded.
const (
	taskList  = "tasks"
	agentList = "agents"
	skillList = "skills"

	planList    = "plan mode"
	planEndList = "end of plan mode"
)

// reminders makes the reminders of an agent that has the named tools.
func (s *Set) reminders(me Caller, critical string, has func(tool string) bool) *environment.Reminders {
	r := environment.NewReminders(critical, func() []string { return s.edits.Take(me.ID) })
	if has("TaskOutput") {
		r.Add(environment.List{Name: taskList, Head: "Background tasks:", Volatile: true,
			Foot:  "\n\nTaskOutput reads the result of a task, TaskStop ends one.",
			Items: func() []environment.Item { return environment.TaskItems(s.Background(me.ID, me.Depth == 0)) }})
	}
	if has("Skill") {
		r.Add(
			environment.List{Name: skillList, Files: true, Head: "Skills that the Skill tool can load:", Items: s.skillItems},
		)
	}
	if has("Agent") {
		r.Add(environment.List{
			Name:  agentList,
			Files: true,
			Head:  "Kinds of agents that the Agent tool can start (subagent_type):",
			Items: func() []environment.Item { return s.agentItems(me) },
		})
	}
	return r
}

func (s *Set) agentItems(me Caller) []environment.Item {
	var items []environment.Item
	for _, d := range s.cfg.Catalog().All() {
		if d.NoModel || me.Spawns != nil && !slices.Contains(me.Spawns, subagent.Normalize(d.Name)) {
			continue
		}
		items = append(items, environment.Item{
			Key:  d.Name,
			Line: fmt.Sprintf("- %s: %s", excerpt.Line(d.Name, 80), excerpt.Line(d.Description, environment.AboutChars)),
		})
	}
	return items
}

func (s *Set) skillItems() []environment.Item {
	var items []environment.Item
	for _, k := range s.cfg.Skills().All() {
		items = append(items, environment.Item{
			Key:  k.Name,
			Line: fmt.Sprintf("- %s: %s", k.Name, excerpt.Line(k.Description, environment.AboutChars)),
		})
	}
	return items
}

// longCall is the length of a call after which a provider has forgotten the conversation, or
// nearly so.
const longCall = 4 * time.Minute

// compaction configures how the agent's conversation is compacted.
func (k *Environment) compaction(model string) *agent.Compaction {
	s := k.s
	c := &agent.Compaction{Share: s.Options.Context.Share, Restore: k.restore,
		Before: k.Runner.PreCompact, After: k.Runner.PostCompact}
	if s.cfg.Window != nil {
		c.Window, _ = s.cfg.Window(model)
	}
	return c
}

// restore returns what the agent must keep after a compaction.
func (k *Environment) restore(ctx context.Context) string {
	running := environment.RunningTasks(k.s.Background(k.Me.ID, k.Me.Depth == 0), k.runtime().unless(false))
	return join([]string{running, k.todos(ctx), k.used.Restore()})
}

// todos returns the open to-dos.
func (k *Environment) todos(ctx context.Context) string {
	store := k.s.cfg.Todos
	if store == nil {
		return ""
	}
	list, err := store.List(ctx)
	if err != nil {
		return "" // the tools report it
	}
	var b strings.Builder
	for _, it := range list.Items {
		if it.Status == todo.Completed {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("## To-dos\n")
		}
		fmt.Fprintf(&b, "- %s %s (%s)\n", it.ID, excerpt.Line(it.Subject, environment.AboutChars), it.Status)
	}
	return excerpt.Inert(strings.TrimRight(b.String(), "\n"))
}

// waits reports whether the next request of the agent may be long in coming: agents or workflows
// work for it in the background, or it has waited long for a call before.
func (k *Environment) waits() bool {
	return k.waited.Load() || slices.ContainsFunc(k.s.Background(k.Me.ID, k.Me.Depth == 0),
		func(r task.Record) bool { return r.Kind.IsAgent() || r.Traits().Work == task.BySteps })
}

// keepResult stores the result of a call that later requests leave out, and returns how the agent
// reads it again. The result of a call that only reads is not stored: the call can be made again. The name of the
// file is the same each time. What tells the agent how to work, and answers of the user, stay, and so
// does everything of an agent that cannot read a file.
func (k *Environment) keepResult(_ context.Context, c agent.Call, text string) (string, error) {
	has := func(name string) bool {
		return slices.ContainsFunc(k.Config.Tools, func(t agent.Tool) bool { return t.Spec().Name == name })
	}
	switch c.Name {
	case "Read", "Glob", "Grep":
		return fmt.Sprintf("Call %s with the same input to see it again.", c.Name), nil
	case "Skill", "AskUserQuestion", task.ExitPlanMode, findtool.Search:
		return "", fmt.Errorf("keep the result of %s: it stays in the conversation", c.Name)
	}
	id := sha256.Sum256([]byte(c.ID))
	place := k.s.Place
	name := fmt.Sprintf("result-%s-%s.txt", cmp.Or(k.Me.ID, place.ID()), hex.EncodeToString(id[:6]))
	path := filepath.Join(place.Tasks(), name)
	if !has("Read") || !k.Gate().MayRead(path) {
		return "", fmt.Errorf("keep the result of %s: the agent may not read %s", c.Name, path)
	}
	if err := place.Project().Root().WriteAtomic(path, []byte(text)); err != nil {
		return "", fmt.Errorf("keep the result of %s: %w", c.Name, err)
	}
	return "Read " + path + " to see it again.", nil
}
