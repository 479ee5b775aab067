package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/acpclient"
	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Launch checks, resolves and starts a subagent for me. The notes list where it got something
// else than requested.
func (s *Set) Launch(
	ctx context.Context, in subagent.Input, spec task.Spec, me Caller,
) (_ task.Record, notes []string, err error) {
	if spec.Team != nil {
		s.teams.Lock()
		defer s.teams.Unlock()
		if spec, err = s.enlist(spec); err != nil {
			return task.Record{}, nil, err
		}
	}
	child, err := s.Resolve(in, me)
	if err != nil {
		return task.Record{}, nil, err
	}
	if me.ID == "" && child.def.ACP == nil { // a client may not wait for the end
		if _, err := s.cfg.Models.Find(child.Model, home.Lookup(me.Env), child.origin()); err != nil {
			return task.Record{}, nil, err
		}
	}
	child.join(spec.Team, me)
	child.travels(in)
	in.Type, in.Model, in.MaxTurns, in.Isolation = child.def.Name, child.Model, child.MaxTurns, child.isolation
	in.On = child.on
	w := s.work(child, in)
	spec.Input, spec.Pool, spec.On = w.Input, Pool, child.on
	spec.AgentType, spec.Mode, spec.Model, spec.Prompt = in.Type, string(child.Rules.Mode), in.Model, in.Prompt
	if spec.Cwd == "" {
		spec.Cwd = me.Cwd
	}
	if spec.Description == "" {
		spec.Description = excerpt.Line(in.Prompt, 60)
	}
	if spec.Name == "" {
		spec.Name = subagent.Normalize(in.Type)
	}
	if spec.Sandbox, err = child.held(); err != nil {
		return task.Record{}, nil, err
	}
	if s.countsAgents(me) { // of several that are started at once, each counts those before it
		s.counting.Lock()
		defer s.counting.Unlock()
	}
	if quoted := s.quote(&spec, me); quoted != "" {
		child.notes = append(child.notes, quoted)
	}
	held, err := s.budgets.Reserve(&spec, child.budget("", me))
	if err != nil {
		return task.Record{}, nil, err
	}
	if child.def.OnEnd == task.Stops || child.isolation == "" && child.on == "" {
		spec.OnEnd = child.def.OnEnd
	}
	s.Report.Say(me.ID, child.notes...)
	rec, begin, err := s.Tasks.Record(ctx, w.Driver, spec)
	if err != nil {
		held.Release()
		return rec, child.notes, err
	}
	held.Give(rec.ID)
	begin()
	return s.Tasks.Placed(rec), child.notes, nil
}

// countsAgents reports whether a start by me learns the likely use of all agents at work.
func (s *Set) countsAgents(me Caller) bool { return s.Options.Limits.QuoteFrom > 0 && me.ID != "" }

// quote writes the likely use of an agent into its spec, if the caller wants to know or
// many agents are at work; it returns the likely use of those together.
func (s *Set) quote(spec *task.Spec, me Caller) (fanOut string) {
	many := []task.Record{}
	if s.countsAgents(me) {
		for _, r := range s.Tasks.Living() {
			if r.Kind.IsAgent() && !r.IsConversation() {
				many = append(many, r)
			}
		}
	}
	every := max(s.Options.Limits.QuoteFrom, 1)
	said := len(many) > 0 && (len(many)+1)%every == 0 // not at each further one: its caller reads all of it
	if !said && !me.quote {
		return ""
	}
	q := s.budgets.Quote(spec.AgentType, spec.Model)
	if spec.Quote = &q; !said {
		return ""
	}
	quotes := []task.Quote{q}
	for _, r := range many {
		quotes = append(quotes, s.budgets.Quote(r.AgentType, r.Model))
	}
	return budget.FanOut(quotes)
}

// Child is a resolved subagent before its start.
type Child struct {
	s *Set
	Caller
	def   subagent.Definition
	notes []string // where it gets something else than requested, for the user and the caller

	isolation string // worktree, or empty

	on        string   // a worker or a label, where it works; empty: where its caller does
	untracked []string // patterns of files that travel there though they are not tracked
	bare      bool     // no folder travels there
	sync      bool     // the files of a folder without git travel there

	again  bool // a further run
	passOn bool // the run has ended, and its running tasks go to its parent

	outside *acpclient.Agent // of another vendor; nil: it is one of ours
}

// Resolve determines the tools, rules, model and limits of a subagent: never more than the caller has.
func (s *Set) Resolve(in subagent.Input, me Caller) (*Child, error) {
	def, err := s.cfg.Catalog().Find(in.Type)
	if err != nil {
		return nil, err
	}
	if me.Spawns != nil && !slices.Contains(me.Spawns, subagent.Normalize(def.Name)) {
		return nil, &subagent.UnknownTypeError{Type: in.Type, Known: me.Spawns}
	}
	isolation, err := s.checkouts.Isolation(in.Isolation, def.Isolation)
	if err != nil {
		return nil, err
	}
	c := &Child{s: s, Caller: me, def: def, isolation: isolation}
	if err := c.at(cmp.Or(in.On, def.On), me); err != nil {
		return nil, err
	}
	c.parent = me.ID
	c.Host, c.teammate, c.live, c.Rules.Mode, c.quote = nil, nil, nil, me.Mode(), false
	c.Depth = me.Depth + 1
	if def.ACP != nil {
		c.Model, err = modelOfOthers(in, def)
	} else {
		var choice choose.Choice
		choice, err = s.choose(me, in, def, me.ID != "" || me.byModel)
		c.Model, c.notes = choice.Name, choice.Notes
	}
	if err != nil {
		return nil, err
	}
	for _, n := range []int{in.MaxTurns, def.MaxTurns, me.MaxTurns} {
		if n > 0 {
			c.MaxTurns = n
			break
		}
	}
	// The caller cannot override what the definition forbids.
	for _, mode := range []string{def.PermissionMode, in.PermissionMode} {
		c.Rules.Mode = environment.Narrower(c.Rules.Mode, policy.Mode(mode))
	}
	var spawns []string
	if def.Tools != nil {
		c.named = def.Tools
	}
	def.Tools, spawns = environment.Spawnable(def.Tools)
	c.Tools, c.Spawns = environment.Subset(
		me.Tools,
		def.Tools,
		def.DisallowedTools,
		environment.ToolNames(s.cfg.Tools)...), environment.Subset(me.Spawns, spawns, nil)
	c.barred, c.own = environment.Bar(me.barred, def.DisallowedTools), s.ownServers(def, me)
	return c, nil
}

// choose selects the model of an agent, and checks that it can be called.
// byAgent says that an agent asks: the cost guard binds agents, and neither people nor clients.
func (s *Set) choose(me Caller, in subagent.Input, def subagent.Definition, byAgent bool) (choose.Choice, error) {
	p := s.cfg.Policy
	p.Reachable = func(name string) error {
		_, err := s.cfg.Models.Find(name, home.Lookup(me.Env), me.origin())
		return err
	}
	top := ""
	if byAgent {
		top = s.Options.Model
		if m := s.mainAgent(); m != nil {
			top = m.Me.ModelName()
		}
	}
	return p.Choose(choose.Request{
		Input:      in.Model,
		Definition: def.Model,
		Parent:     me.ModelName(),
		Session:    top,
		AgentType:  subagent.Normalize(def.Name),
	})
}

// budget returns the child in the form in which its budget is reserved. The ID names the agent
// that gets a further run.
func (c *Child) budget(id task.ID, asker Caller) budget.Agent {
	return budget.Agent{ID: id, Asker: asker.ID, Depth: c.Depth, Model: c.Model, Def: c.def}
}

// assemble creates the subagent when its run begins.
func (c *Child) assemble(ctx context.Context, h task.Host, _ subagent.Input) (_ *subagent.Assembly, err error) {
	rec := h.Record()
	me := c.Caller
	me.ID, me.Host, me.Depth = rec.ID, h, rec.Depth
	place := c.s.Place
	activity := c.s.activity.Begin(rec.ID, rec.Parent, true)
	defer func() {
		if err != nil {
			c.s.activity.End(rec.ID)
		}
	}()
	var own *environment.Checkout
	if c.isolation != "" {
		if own, err = c.s.checkouts.Open(ctx, h, c.Cwd, c.again); err != nil {
			return nil, err
		}
		me.inside, me.Rules = rec.ID, own.Rules(me.Rules, me.Cwd)
		c.s.sandboxes.Copied(me.Rules.Copies)
		me.Cwd, me.Env = own.Dir(), gitrun.Environ(me.Env)
		defer func() {
			if err != nil {
				own.Undo(ctx)
			}
		}()
	}
	text := ""
	if c.on != "" {
		if text, err = c.openWorkspace(ctx, h, &me); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				me.workspace.Undo()
			}
		}()
	}
	k, err := c.s.newEnvironment(ctx, me, c.def, place.AgentTranscript(rec.ID))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			k.Close()
		}
	}()
	if c.outside != nil {
		if err = c.openOutside(ctx, h, k); err != nil {
			return nil, err
		}
	}
	t, history, err := agent.OpenTranscript(place.AgentTranscript(rec.ID), agent.Meta{
		ParentTask:  string(cmp.Or(rec.Parent, rec.Session)),
		Version:     c.s.Info.Version,
		Cwd:         me.Cwd,
		IsSidechain: true,
		AgentName:   c.def.Name,
		AgentID:     string(rec.ID),
		SessionID:   string(rec.Session),
		Sync:        c.s.Options.Power(),
	})
	if err != nil {
		return nil, err
	}
	if err := LinkTranscript(place.AgentTranscript(rec.ID), place.OutputLink(rec.ID)); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	box, err := c.s.mail.Open(ctx, rec.ID)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	k.Config.Transcript, k.Config.Mail = t, c.s.mail.Reader(box, nil, c.teammate.read)
	k.Resumed = len(history.Messages) > 0
	c.s.enter(rec.ID, c.teammate)
	activity.Follow(&k.Config)
	c.s.cfg.Seam.Agent(rec.ID, &k.Config)
	a := &subagent.Assembly{
		Config:  k.Config,
		History: history.Messages,
		Start:   k.start,
		Turn:    c.s.turnOf(rec.ID),
		Rest:    c.rest(h, box),
		PassOn:  func() bool { return c.passOn },
		End:     k.Hooks.End,
		Cost:    c.s.budgets.Cost(rec.ID),
		Detach:  func() bool { return c.s.GoesOn(h.Record()) },
		Close: func() error {
			c.s.activity.End(rec.ID)
			c.s.mail.Drop(rec.ID)
			c.s.enter(rec.ID, nil)
			k.Close()
			return t.Close()
		},
	}
	if c.outside != nil {
		a.Cost = c.outside.Cost
	}
	switch {
	case own != nil:
		k.place, a.Leave = own.Text, own.Leave
	case c.on != "":
		k.place, a.Leave = text, c.s.leaveWorkspace(rec.ID, me.workspace)
	}
	return a, nil
}

// LinkTranscript makes the link to a transcript next to the output file. It is
// made under another name first: a reader never finds it missing.
func LinkTranscript(to, at string) error {
	rel, err := filepath.Rel(filepath.Dir(at), to)
	if err != nil {
		return fmt.Errorf("link to transcript: %w", err)
	}
	dir, err := saferoot.Near(at).Folder(filepath.Dir(at))
	if err != nil {
		return fmt.Errorf("link to transcript: %w", err)
	}
	defer dir.Close()
	name := filepath.Base(at)
	temp := name + ".new"
	_ = dir.Remove(temp)
	if err := dir.Symlink(rel, temp); err != nil {
		return fmt.Errorf("link to transcript: %w", err)
	}
	if err := dir.Rename(temp, dir, name); err != nil {
		return fmt.Errorf("link to transcript: %w", err)
	}
	return nil
}

// ownServers returns the MCP servers that a definition names, for an agent that me starts.
func (s *Set) ownServers(def subagent.Definition, me Caller) []servers.Server {
	return s.servers.Own(def, me.access(), me.Env, func(text string) { s.Report.Say(me.ID, text) })
}

// ModelName returns the current model of the agent.
func (me Caller) ModelName() string {
	if me.live != nil {
		name, _, _ := me.live.get()
		return name
	}
	return me.Model
}

// origin returns the folder to which relative names in the settings refer: for an isolated
// agent, not its own.
func (me Caller) origin() string { return cmp.Or(me.Rules.Base, me.Cwd) }

// here is the folder on this machine in which the agent works, or would.
func (me Caller) here() string {
	if me.workspace != nil {
		return me.origin()
	}
	return me.Cwd
}

// within makes a path of a file tool absolute and resolves its links.
func (me Caller) within(path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(me.Cwd, path)
	}
	real, err := filepath.EvalSymlinks(path)
	return real, err == nil
}
