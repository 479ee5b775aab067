package session

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
	"github.com/drover-dev/drover/internal/agentenv/memory"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/upkeep"
	"github.com/drover-dev/drover/internal/tool/boardtool"
	"github.com/drover-dev/drover/internal/tool/files"
	"github.com/drover-dev/drover/internal/tool/search"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Memory is what a session remembers, and when it dreams.
type Memory struct {
	Store *memory.Store // nil: nothing is remembered
	Model string        // of dreams; empty: a cheap one, or that of the session

	Auto bool          // the session dreams by itself, when it has been idle
	Idle time.Duration // for so long
	Rule memory.Rule   // and this says that it is due

	AtEnd    bool // a conversation that ends has its learnings consolidated; see [Session.Parting]
	MinTurns int  // prompts that it must have had for that
}

// Bounds of a dream.
const (
	dreamTurns  = 30 // replies
	dreamSource = 20 // transcripts that it is told of, the newest
)

// dreamType is what a dream is called where agents have types.
const dreamType = "dream"

// startDream starts a consolidation of memory. Whether another one is under way is
// looked at here for a good answer, and decided by the lock when it begins.
func (s *Session) startDream(ctx context.Context, trigger string, spec task.Spec) (task.Record, error) {
	store := s.cfg.Agents.Memory.Store
	if store == nil {
		return task.Record{}, &control.Error{Code: control.Unavailable, Message: "nothing is remembered here", Mend: "set memory.enabled to on"}
	}
	state, err := store.State()
	if err != nil {
		return task.Record{}, err
	}
	if state.PID != 0 {
		return task.Record{}, &control.Error{Code: control.Conflict, Message: (&memory.HeldError{PID: state.PID}).Error(), Mend: "see `drover ps --all-sessions`"}
	}
	me := self{s: s, cwd: s.cfg.Info.Project, env: s.cfg.Agents.Env, model: s.cfg.Agents.Model}
	choice, err := s.choose(me, subagent.Input{Model: s.cfg.Agents.Memory.Model}, subagent.Definition{Name: dreamType, Model: cheapModel(s.cfg.Agents.Memory.Model)})
	if err != nil {
		return task.Record{}, err
	}
	me.depth, me.model = 1, choice.Name
	d := &dreaming{self: me, store: store}
	w := s.kinds.Dream(dream.Config{Acquire: d.acquire, Held: func(err error) bool { return errors.Is(err, memory.ErrHeld) }, Assemble: d.assemble}, dream.Input{Trigger: trigger})
	spec.Input, spec.Pool, spec.AgentType, spec.Model = w.Input, agentPool, dreamType, choice.Name
	spec.Name, spec.Description = cmp.Or(spec.Name, dreamType), cmp.Or(spec.Description, "Consolidate memory")
	spec.Cwd, spec.Backgrounded, spec.Silent, spec.Owner = store.Dir(), true, true, ""
	held, err := s.budgets.Reserve(&spec, budget.Agent{Depth: me.depth, Model: me.model, Def: subagent.Definition{Name: dreamType}})
	if err != nil {
		return task.Record{}, err
	}
	rec, begin, err := s.sup.Record(ctx, w.Driver, spec)
	if err != nil {
		held.Release()
		return rec, err
	}
	held.Give(rec.ID)
	begin()
	return s.sup.Placed(rec), nil
}

// cheapModel is a wish, which is met where it can be: consolidation wants diligence
// rather than wit.
func cheapModel(set string) string {
	if set != "" {
		return ""
	}
	return "haiku"
}

// requestDream starts one for a client.
func (s *Session) requestDream(ctx context.Context, r control.StartRequest, spec task.Spec) (task.Record, error) {
	switch {
	case r.Keep:
		return task.Record{}, &control.Error{Code: control.Invalid, Message: "a dream cannot be kept past its host", Mend: "start another one later"}
	case r.Lease != "":
		return task.Record{}, &control.Error{Code: control.Invalid, Message: "a dream belongs to no client, and takes no lease"}
	}
	return s.startDream(ctx, dream.Manual, task.Spec{Name: spec.Name, Description: spec.Description, Timeout: spec.Timeout})
}

// dreaming is a dream that is going to be.
type dreaming struct {
	self
	store *memory.Store
}

func (d *dreaming) acquire() (dream.Lock, error) {
	l, err := d.store.Acquire()
	if err != nil {
		return nil, err // not a nil lock in an interface
	}
	return l, nil
}

// assemble puts the agent together: it can read memory and transcripts, change
// memory, and nothing else.
func (d *dreaming) assemble(_ context.Context, h task.Host, _ dream.Input, last time.Time) (*dream.Assembly, error) {
	s, rec := d.s, h.Record()
	choice, err := s.cfg.Agents.Models.Find(d.model, home.Lookup(d.env), d.origin())
	if err != nil {
		return nil, err
	}
	project := s.cfg.Place.Project()
	area := &dreamArea{store: d.store, project: resolved(project.Dir())}
	tools := files.New(files.Config{Root: d.store.Dir(), ReadDirs: []string{project.Dir()}, MayRead: area.mayRead,
		MayOpen: func(f *os.File, change bool) bool { return area.rules.MayOpen(f, change) }})
	tools = append(tools, search.New(search.Config{Root: d.store.Dir(), Dirs: []string{project.Dir()}, MayRead: area.mayRead})...)
	tools = append(tools, boardtool.New(boardtool.Config{Store: d.store, By: dreamType}))
	if area.rules, err = s.gate(d.dreamRules(tools)); err != nil {
		return nil, err
	}
	sources, err := transcripts(project, last)
	if err != nil {
		return nil, err
	}
	t, _, err := agent.OpenTranscript(s.cfg.Place.AgentTranscript(rec.ID), agent.Meta{ParentTask: string(rec.Session), Version: s.cfg.Info.Version,
		Cwd: d.store.Dir(), IsSidechain: true, AgentName: dreamType, AgentID: string(rec.ID), SessionID: string(rec.Session), Sync: s.cfg.Power})
	if err != nil {
		return nil, err
	}
	cfg := agent.Config{Model: choice.Model, ModelName: choice.Name, Tools: tools, Gate: area, Transcript: t, MaxTurns: dreamTurns, Hold: h.Hold,
		Agent: dreamType, AgentID: string(rec.ID), SessionID: string(s.cfg.Info.Session), Compaction: &agent.Compaction{Share: s.cfg.Agents.Share}}
	if s.cfg.Agents.Window != nil {
		cfg.Compaction.Window, _ = s.cfg.Agents.Window(choice.Name)
	}
	cfg.Meter = s.budgets.Meter(rec.ID, "", dreamType, false)
	return &dream.Assembly{Config: cfg, Prompt: dreamPrompt(d.store.Dir(), last, sources), Close: t.Close, Updated: s.remembered}, nil
}

// dreamRules are those of the user where they forbid; by themselves they allow the
// tools of a dream in its own folder. Bans on relative paths speak of the project.
func (d *dreaming) dreamRules(tools []agent.Tool) permission.Rules {
	r := d.s.cfg.Agents.Rules
	r.Mode, r.Cwd, r.Base, r.Dirs = permission.AcceptEdits, d.store.Dir(), d.s.cfg.Info.Project, []string{d.s.cfg.Place.Project().Dir()}
	r.Allow, r.More, r.Bash, r.Answer, r.Headless, r.Tools = []string{boardtool.Name}, nil, nil, nil, true, tools
	return r
}

// dreamArea is what a dream may touch, whatever the rules allow besides.
type dreamArea struct {
	store   *memory.Store
	project string // without links
	rules   *permission.Gate
}

// mayRead lets through files of memory, and the transcripts of the project's
// sessions with those of their agents.
func (a *dreamArea) mayRead(path string) bool {
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
func (a *dreamArea) Check(ctx context.Context, c agent.Call) (agent.Decision, error) {
	if environment.Writes(c.Name) {
		if err := a.mayWrite(c.Input); err != nil {
			return agent.Decision{Reason: err.Error()}, nil
		}
	}
	return a.rules.Check(ctx, c)
}

// mayWrite looks at a call of Write or Edit before it is made.
func (a *dreamArea) mayWrite(input json.RawMessage) error {
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

// size is how many bytes the file would have. Of a file that is too large already
// it is what that has: only a smaller one in its place will do.
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
		return info.Size() // the tool says what is wrong
	}
	n := bytes.Count(data, []byte(c.Old))
	if !c.All {
		n = min(n, 1)
	}
	return int64(len(data) + n*(len(c.New)-len(c.Old)))
}

// resolved is a path without links, or as it is where nothing is.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// source is a conversation that a dream is told of.
type source struct {
	path  string
	at    time.Time // of its last change
	bytes int64
}

// transcripts are the conversations that were at work after a time, newest first.
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

// dreamPrompt is what this dream is about.
func dreamPrompt(dir string, last time.Time, sources []source) string {
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
	if n := len(sources) - dreamSource; n > 0 {
		fmt.Fprintf(&b, ", of which these are the newest %d", dreamSource)
		sources = sources[:dreamSource]
	}
	b.WriteString(":\n")
	for _, one := range sources {
		fmt.Fprintf(&b, "- %s (%d bytes, %s)\n", one.path, one.bytes, one.at.UTC().Format(time.RFC3339))
	}
	b.WriteString("\nGo through the four stages now: orient, gather, consolidate, prune.\n")
	return b.String()
}

// remembered tells the user what a dream has done, in the transcript of the main
// agent too, where the agent itself does not read it.
func (s *Session) remembered(changed []string) {
	text := "memory was looked through, and nothing had to be changed"
	if len(changed) > 0 {
		text = "memory was updated: " + strings.Join(changed, ", ")
	}
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil {
		if err := m.kit.cfg.Transcript.Append(agent.Record{Note: text}); err != nil {
			text += fmt.Sprintf(" (the transcript does not hold this: %v)", err)
		}
	}
	s.say(s.cfg.Info.Session, text)
}

// recoverMemory puts right what a host that died within a dream has left.
func (s *Session) recoverMemory() {
	if store := s.cfg.Agents.Memory.Store; store != nil {
		if err := store.Recover(); err != nil {
			s.say(s.cfg.Info.Session, err.Error())
		}
	}
}

// dreamTimer begins dreams in idle time.
func (s *Session) dreamTimer() *upkeep.Dreams {
	m := s.cfg.Agents.Memory
	return &upkeep.Dreams{Memory: m.Store, Idle: m.Idle, Rule: m.Rule, State: s.State,
		Worked: func(since time.Time) (int, error) {
			found, err := transcripts(s.cfg.Place.Project(), since)
			return len(found), err
		},
		Start: func(ctx context.Context) error {
			_, err := s.startDream(ctx, dream.Idle, task.Spec{})
			return err
		}}
}

// dirs are folders that agents may read because memory is in them.
func (m Memory) dirs() []string {
	if m.Store == nil {
		return nil
	}
	return []string{m.Store.Dir()}
}

// board is the tool of an agent that looks after the board: one whose definition
// names it.
func (k *kit) board() []agent.Tool {
	store := k.me.s.cfg.Agents.Memory.Store
	if store == nil || !slices.Contains(k.me.tools, boardtool.Name) {
		return nil
	}
	return []agent.Tool{boardtool.New(boardtool.Config{Store: store, By: (&runtime{self: k.me}).name()})}
}
