// Package dreams assembles the agent that consolidates the memory of a project.
//
// A dream changes only memory files, and reads in addition only conversations of the project,
// whatever the rules allow.
//
// Package upkeep decides when a session starts a dream by itself; the lock of package memory
// ensures that only one process dreams.
package dreams

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/internal/tool/boardtool"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/files"
	"github.com/drover-dev/drover/internal/tool/search"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Type is the agent type of a dream.
const Type = "dream"

// Dreams starts dreams. Its methods may be called by several goroutines.
type Dreams struct {
	s       *tree.Tree
	cfg     agents.Config
	agents  *agents.Set
	kinds   *builtin.Kinds
	budgets *budget.Budgets
	updated func(changed []string)
}

// New returns the dreams of a session. updated is called at the end of a dream with the names of the files
// that it has changed.
func New(
	s *tree.Tree, cfg agents.Config, set *agents.Set, kinds *builtin.Kinds, budgets *budget.Budgets,
	updated func(changed []string),
) *Dreams {
	return &Dreams{s: s, cfg: cfg, agents: set, kinds: kinds, budgets: budgets, updated: updated}
}

// Limits of a dream.
const (
	maxTurns   = 30 // replies
	maxSources = 20 // number of transcripts in its prompt, newest first
)

// Start starts a consolidation of memory. It checks here whether another one is running, for a
// good error; the lock decides when the dream begins.
func (d *Dreams) Start(ctx context.Context, trigger string, spec task.Spec) (task.Record, error) {
	store := d.cfg.Memory
	if store == nil {
		return task.Record{}, control.Refuse(control.Unavailable, "nothing is remembered here", "set memory.enabled to on")
	}
	state, err := store.State()
	if err != nil {
		return task.Record{}, err
	}
	if state.PID != 0 {
		return task.Record{}, control.Refuse(control.Conflict, (&memory.HeldError{PID: state.PID}).Error(),
			"see `drover ps --all-sessions`")
	}
	wish := d.s.Options.Memory.Model
	choice, err := d.agents.ChooseModel(Type, wish, cheapModel(wish))
	if err != nil {
		return task.Record{}, err
	}
	model := choice.Name
	work := d.kinds.Dream(
		dream.Config{Acquire: d.acquire, Held: func(err error) bool { return errors.Is(err, memory.ErrHeld) },
			Assemble: func(_ context.Context, h task.Host, _ dream.Input, last time.Time) (*dream.Assembly, error) {
				return d.assemble(h, model, last)
			}},
		dream.Input{Trigger: trigger},
	)
	spec.Input, spec.Pool, spec.AgentType, spec.Model = work.Input, agents.Pool, Type, model
	spec.Name, spec.Description = cmp.Or(spec.Name, Type), cmp.Or(spec.Description, "Consolidate memory")
	spec.Cwd, spec.Backgrounded, spec.Silent, spec.Owner = store.Dir(), true, true, ""
	held, err := d.budgets.Reserve(&spec, budget.Agent{Depth: 1, Model: model, Def: subagent.Definition{Name: Type}})
	if err != nil {
		return task.Record{}, err
	}
	rec, begin, err := d.s.Tasks.Record(ctx, work.Driver, spec)
	if err != nil {
		held.Release()
		return rec, err
	}
	held.Give(rec.ID)
	begin()
	return d.s.Tasks.Placed(rec), nil
}

// Worked returns how many conversations of the project were active after a time.
func (d *Dreams) Worked(since time.Time) (int, error) {
	found, err := transcripts(d.s.Place.Project(), since)
	return len(found), err
}

// cheapModel is the preferred model, if it is available: consolidation needs diligence more
// than intelligence.
func cheapModel(set string) string {
	if set != "" {
		return ""
	}
	return "haiku"
}

func (d *Dreams) acquire() (dream.Lock, error) {
	l, err := d.cfg.Memory.Acquire()
	if err != nil {
		return nil, err // avoids a nil pointer in an interface
	}
	return l, nil
}

// assemble assembles the agent: it can read memory and transcripts, change memory, and nothing
// else.
func (d *Dreams) assemble(h task.Host, model string, last time.Time) (*dream.Assembly, error) {
	rec, store, project := h.Record(), d.cfg.Memory, d.s.Place.Project()
	origin := cmp.Or(d.cfg.Rules.Base, d.s.Info.Project)
	found, err := d.cfg.Models.Find(model, home.Lookup(d.cfg.Env), origin)
	if err != nil {
		return nil, err
	}
	a := &area{store: store, project: resolved(project.Dir())}
	tools := files.New(confine.Area{Root: store.Dir(), MayRead: a.mayRead,
		MayOpen: func(f *os.File, change bool) bool { return a.rules.MayOpen(f, change) }}, project.Dir())
	tools = append(tools,
		search.New(confine.Area{Root: store.Dir(), Dirs: []string{project.Dir()}, MayRead: a.mayRead})...)
	tools = append(tools, boardtool.New(store, Type))
	if a.rules, err = d.gate(tools); err != nil {
		return nil, err
	}
	sources, err := transcripts(project, last)
	if err != nil {
		return nil, err
	}
	t, _, err := agent.OpenTranscript(d.s.Place.AgentTranscript(rec.ID), agent.Meta{
		ParentTask:  string(rec.Session),
		Version:     d.s.Info.Version,
		Cwd:         store.Dir(),
		IsSidechain: true,
		AgentName:   Type,
		AgentID:     string(rec.ID),
		SessionID:   string(rec.Session),
		Sync:        d.s.Options.Power(),
	})
	if err != nil {
		return nil, err
	}
	cfg := agent.Config{
		Model:           found.Model,
		ModelName:       found.Name,
		Tools:           tools,
		Gate:            a,
		Transcript:      t,
		MaxTurns:        maxTurns,
		WaitWhilePaused: h.WaitWhilePaused,
		Agent:           Type,
		AgentID:         string(rec.ID),
		SessionID:       string(d.s.Place.ID()),
		Compaction:      &agent.Compaction{Share: d.s.Options.Context.Share},
	}
	if d.cfg.Window != nil {
		cfg.Compaction.Window, _ = d.cfg.Window(found.Name)
	}
	cfg.Meter = d.budgets.Meter(rec.ID, "", Type, false)
	return &dream.Assembly{
		Config:  cfg,
		Prompt:  prompt(store.Dir(), last, sources),
		Close:   t.Close,
		Updated: d.updated,
	}, nil
}

// gate decides what the tools of a dream may do.
func (d *Dreams) gate(tools []agent.Tool) (*policy.Gate, error) {
	return environment.Gates{Foreign: d.cfg.Foreign, Report: d.s.Report}.New(d.rules(tools))
}

// rules returns the user's ask and deny rules, and allows the tools of a dream in its own
// folder. Relative paths in deny rules are relative to the project.
func (d *Dreams) rules(tools []agent.Tool) policy.Rules {
	r, project := d.cfg.Rules, d.s.Place.Project()
	r.Mode, r.Cwd, r.Base, r.Dirs = policy.AcceptEdits, d.cfg.Memory.Dir(), project.Folder(), []string{project.Dir()}
	r.Allow, r.More, r.Bash, r.Answer, r.Headless, r.Tools = []string{boardtool.Name}, nil, nil, nil, true, tools
	return r
}

// area bounds the files of a dream, whatever the rules allow.
type area struct {
	store   *memory.Store
	project string // links resolved
	rules   *policy.Gate
}

// mayRead permits memory files, and the transcripts of the project's sessions and of their
// agents.
func (a *area) mayRead(path string) bool {
	if filepath.Dir(path) == resolved(a.store.Dir()) {
		return filepath.Ext(path) == ".md" && a.rules.MayRead(path)
	}
	rel, err := filepath.Rel(a.project, path)
	if err != nil || !filepath.IsLocal(rel) || filepath.Ext(rel) != ".jsonl" {
		return false
	}
	parts := strings.Split(rel, string(filepath.Separator))
	main := len(parts) == 2 && parts[1] == "transcript.jsonl"
	sub := len(parts) == 3 && parts[1] == "subagents"
	return (main || sub) && home.SessionID(parts[0]) && a.rules.MayRead(path)
}

// Check implements [agent.Gate].
func (a *area) Check(ctx context.Context, c agent.Call) (agent.Decision, error) {
	if environment.Writes(c.Name) {
		if err := a.mayWrite(c.Input); err != nil {
			return agent.Decision{Reason: err.Error()}, nil
		}
	}
	return a.rules.Check(ctx, c)
}

// mayWrite checks a call of Write or Edit.
func (a *area) mayWrite(input json.RawMessage) error {
	var in change
	if err := json.Unmarshal(input, &in); err != nil {
		return fmt.Errorf("the input cannot be read: %w", err)
	}
	if !filepath.IsAbs(in.Path) {
		in.Path = filepath.Join(a.store.Dir(), in.Path)
	}
	return a.store.MayWrite(in.Path, in.size())
}

// change is the input of Write or Edit.
type change struct {
	Path    string `json:"file_path"`
	Content string `json:"content"`
	Old     string `json:"old_string"`
	New     string `json:"new_string"`
	All     bool   `json:"replace_all"`
}

// size returns the size that the file would have. For an edit of a file that is too large
// already it returns the present size: only a Write of a smaller file is accepted.
func (c change) size() int64 {
	if c.Old == "" {
		return int64(len(c.Content) + len(c.New))
	}
	f, err := saferoot.Dir(filepath.Dir(c.Path)).Open(c.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return int64(len(c.Content) + len(c.New))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return int64(len(c.Content) + len(c.New))
	}
	if info.Size() > memory.MaxFile {
		return info.Size()
	}
	data, err := io.ReadAll(io.LimitReader(f, memory.MaxFile))
	if err != nil {
		return info.Size() // the tool reports the error
	}
	n := bytes.Count(data, []byte(c.Old))
	if !c.All {
		n = min(n, 1)
	}
	return int64(len(data) + n*(len(c.New)-len(c.Old)))
}

// resolved returns a path with its links resolved, or unchanged if it does not exist.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// source is a conversation in the prompt of a dream.
type source struct {
	path  string
	at    time.Time // of its last change
	bytes int64
}

// transcripts returns the conversations that were active after a time, newest first.
func transcripts(p home.Project, after time.Time) ([]source, error) {
	sessions, err := p.Sessions()
	if err != nil {
		return nil, err
	}
	var out []source
	for _, one := range sessions {
		info, err := one.Below().Lstat(one.Transcript())
		if err != nil || !info.Mode().IsRegular() || !info.ModTime().After(after) {
			continue // it has no main agent, or nothing new
		}
		out = append(out, source{one.Transcript(), info.ModTime(), info.Size()})
	}
	slices.SortFunc(out, func(a, b source) int { return b.at.Compare(a.at) })
	return out, nil
}

// prompt returns the prompt of this dream.
func prompt(dir string, last time.Time, sources []source) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The memory folder is %s.\n", dir)
	when := "Memory has never been consolidated."
	if !last.IsZero() {
		when = "Memory was consolidated last at " + last.UTC().Format(time.RFC3339) + "."
	}
	b.WriteString(when)
	if len(sources) == 0 {
		b.WriteString(" No conversation has been at work since then: look after what is there.\n")
		return b.String()
	}
	fmt.Fprintf(&b, " Since then %d conversations have been at work", len(sources))
	if n := len(sources) - maxSources; n > 0 {
		fmt.Fprintf(&b, ", of which these are the newest %d", maxSources)
		sources = sources[:maxSources]
	}
	b.WriteString(":\n")
	for _, one := range sources {
		fmt.Fprintf(&b, "- %s (%d bytes, %s)\n", one.path, one.bytes, one.at.UTC().Format(time.RFC3339))
	}
	b.WriteString("\nGo through the four stages now: orient, gather, consolidate, prune.\n")
	return b.String()
}
