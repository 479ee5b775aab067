package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/agentenv/worktree"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/session/budget"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/servers"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// caller is who asks for something: the main agent, a subagent, or a client that is
// no agent. What it starts gets no more than it has.
type caller struct {
	s        *Session
	id       task.ID   // of its task; of the session for the main agent; empty for a client
	host     task.Host // of a subagent
	cwd      string
	env      []string
	model    string
	rules    permission.Rules
	tools    []string // names of its tools; nil: all
	spawns   []string // types of agents that it may start; nil: all
	barred   []string // tools of MCP servers that it may not use; see pattern
	own      []servers.Server
	maxTurns int
	depth    int     // 0 for the main agent and for clients
	parent   task.ID // of the agent that asked for it; empty: the main agent, or none
	inside   task.ID // the isolated agent in whose checkout it works; empty: where the session does
	given    *given  // by the program that started the agent at the top; nil: nothing
	mate     *mate   // nil: it is no teammate
	live     *live   // of the main agent
}

// launch starts a subagent for me, which is checked and resolved first. The notes
// say where it got something else than was asked for.
func (s *Session) launch(
	ctx context.Context,
	in subagent.Input,
	spec task.Spec,
	me caller,
) (_ task.Record, notes []string, err error) {
	if spec.Team != nil {
		s.teams.Lock()
		defer s.teams.Unlock()
		if spec, err = s.enlist(spec); err != nil {
			return task.Record{}, nil, err
		}
	}
	child, err := s.child(in, me)
	if err != nil {
		return task.Record{}, nil, err
	}
	child.join(spec.Team, me)
	in.Type, in.Model, in.MaxTurns, in.Isolation = child.def.Name, child.model, child.maxTurns, child.isolation
	w := s.work(child, in)
	spec.Input, spec.Pool = w.Input, agentPool
	spec.AgentType, spec.Mode, spec.Model, spec.Prompt = in.Type, string(child.rules.Mode), in.Model, in.Prompt
	if spec.Cwd == "" {
		spec.Cwd = me.cwd
	}
	if spec.Description == "" {
		spec.Description = firstLine(in.Prompt, 60)
	}
	if spec.Name == "" {
		spec.Name = subagent.Normalize(in.Type)
	}
	held, err := s.budgets.Reserve(&spec, child.budget("", me))
	if err != nil {
		return task.Record{}, nil, err
	}
	if child.def.OnEnd == task.Reparents && child.isolation == "" { // a checkout of its own goes with it
		spec.OnEnd = task.Reparents
	}
	s.say(me.id, child.notes...)
	rec, begin, err := s.sup.Record(ctx, w.Driver, spec)
	if err != nil {
		held.Release()
		return rec, child.notes, err
	}
	held.Give(rec.ID)
	begin()
	return s.sup.Placed(rec), child.notes, nil
}

// child is a subagent that is going to be.
type child struct {
	caller
	def   subagent.Definition
	notes []string // about what it gets, for the user and for who asked

	isolation string // worktree, or empty
	again     bool   // it has had a run
}

// child resolves what a subagent gets: never more than the one who asks has.
func (s *Session) child(in subagent.Input, me caller) (*child, error) {
	def, err := me.catalog().Find(in.Type)
	if err != nil {
		return nil, err
	}
	if me.spawns != nil && !slices.Contains(me.spawns, subagent.Normalize(def.Name)) {
		return nil, &subagent.UnknownTypeError{Type: in.Type, Known: me.spawns}
	}
	isolation, err := s.checkouts.Isolation(in.Isolation, def.Isolation)
	if err != nil {
		return nil, err
	}
	c := &child{caller: me, def: def, isolation: isolation}
	c.parent = me.id
	c.host, c.mate, c.live, c.rules.Mode = nil, nil, nil, me.mode()
	c.depth = me.depth + 1
	choice, err := s.choose(me, in, def)
	if err != nil {
		return nil, err
	}
	c.model, c.notes = choice.Name, choice.Notes
	for _, n := range []int{in.MaxTurns, def.MaxTurns, me.maxTurns} {
		if n > 0 {
			c.maxTurns = n
			break
		}
	}
	// who asks cannot lift what the definition forbids
	for _, mode := range []string{def.PermissionMode, in.PermissionMode} {
		c.rules.Mode = environment.Narrower(c.rules.Mode, permission.Mode(mode))
	}
	var spawns []string
	def.Tools, spawns = environment.Spawnable(def.Tools)
	c.tools, c.spawns = environment.Subset(
		me.tools,
		def.Tools,
		def.DisallowedTools,
		environment.ToolNames(s.cfg.Agents.Tools)...), environment.Subset(
		me.spawns,
		spawns,
		nil,
	)
	c.barred, c.own = environment.Bar(me.barred, def.DisallowedTools), s.ownServers(def, me)
	return c, nil
}

// choose finds the model of an agent, and makes sure that it can be reached.
func (s *Session) choose(me caller, in subagent.Input, def subagent.Definition) (choose.Choice, error) {
	p := s.cfg.Agents.Policy
	p.Reachable = func(name string) error {
		_, err := s.cfg.Agents.Models.Find(name, home.Lookup(me.env), me.origin())
		return err
	}
	top := s.cfg.Agents.Model
	s.mu.Lock()
	if s.main != nil {
		top, _, _ = s.main.environment.me.live.get()
	}
	s.mu.Unlock()
	return p.Choose(
		choose.Request{
			Input:      in.Model,
			Definition: def.Model,
			Parent:     me.modelName(),
			Session:    top,
			AgentType:  subagent.Normalize(def.Name),
		},
	)
}

// budget is the child as its budget is reserved. The ID is that of a further run.
func (c *child) budget(id task.ID, asker caller) budget.Agent {
	return budget.Agent{ID: id, Asker: asker.id, Depth: c.depth, Model: c.model, Def: c.def}
}

// assemble puts the subagent together when its run begins.
func (c *child) assemble(ctx context.Context, h task.Host, _ subagent.Input) (_ *subagent.Assembly, err error) {
	rec := h.Record()
	me := c.caller
	me.id, me.host, me.depth = rec.ID, h, rec.Depth
	place := c.s.cfg.Place
	activity := c.s.activity.Begin(rec.ID, rec.Parent, true)
	defer func() {
		if err != nil {
			c.s.activity.End(rec.ID)
		}
	}()
	var own *environment.Checkout
	if c.isolation != "" {
		if own, err = c.s.checkouts.Open(ctx, h, c.cwd, c.again); err != nil {
			return nil, err
		}
		me.inside, me.rules = rec.ID, own.Rules(me.rules, me.cwd)
		me.cwd, me.env = own.Dir(), worktree.Environ(me.env)
		defer func() {
			if err != nil {
				own.Undo(ctx)
			}
		}()
	}
	k, err := c.s.newEnvironment(me, c.def, place.AgentTranscript(rec.ID))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	t, history, err := agent.OpenTranscript(
		place.AgentTranscript(rec.ID),
		agent.Meta{
			ParentTask:  string(cmp.Or(rec.Parent, rec.Session)),
			Version:     c.s.cfg.Info.Version,
			Cwd:         me.cwd,
			IsSidechain: true,
			AgentName:   c.def.Name,
			AgentID:     string(rec.ID),
			SessionID:   string(rec.Session),
			Sync:        c.s.cfg.Power,
		},
	)
	if err != nil {
		return nil, err
	}
	if err := linkTranscript(place.AgentTranscript(rec.ID), place.OutputLink(rec.ID)); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	box, err := c.s.box(ctx, rec.ID)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	k.cfg.Transcript, k.cfg.Mail, k.resumed = t, &mail{s: c.s, box: box, mate: c.mate}, len(history.Messages) > 0
	c.s.enter(rec.ID, c.mate)
	activity.Follow(&k.cfg)
	a := &subagent.Assembly{
		Config:  k.cfg,
		History: history.Messages,
		Start:   k.start,
		Turn:    c.s.turnOf(rec.ID),
		Rest:    c.rest(h, box),
		End:     k.hooks.End,
		Cost:    c.s.budgets.Cost(rec.ID),
		Close: func() error {
			c.s.activity.End(rec.ID)
			c.s.dropBox(rec.ID)
			c.s.enter(rec.ID, nil)
			k.close()
			return t.Close()
		},
	}
	if own != nil {
		k.place, a.Leave = own.Text, own.Leave
	}
	return a, nil
}

// mail is a mailbox as a conversation reads it.
type mail struct {
	s    *Session
	box  *mailbox.Box
	mate *mate                   // whose it is; nil: no teammate's
	skip func(mailbox.Mail) bool // what is told otherwise; nil: nothing is
}

func (m *mail) Take(ctx context.Context) ([]agent.MailMessage, error) {
	var letters []agent.MailMessage
	mail, err := m.box.Mail(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range mail {
		if m.skip != nil && m.skip(x) {
			continue
		}
		l := agent.MailMessage{Seq: int64(x.Seq), Urgent: x.Urgent, Origin: conversation.TaskOrigin}
		if x.Message != nil {
			l.Text, l.Origin = mailbox.RenderMessage(*x.Message), subagent.MessageOrigin
			m.mate.read(x.Message.Kind)
		} else {
			var err error
			if l.Text, err = m.s.render(ctx, x.Notice); err != nil && ctx.Err() != nil {
				return nil, err
			}
			if err != nil { // one damaged record must not keep all mail back for ever
				l.Text = mailbox.RenderUnreadable(x.Notice, err)
			}
		}
		letters = append(letters, l)
		_ = failpoint.Hit("mail/taken")
	}
	return letters, nil
}

func (m *mail) Ack(ctx context.Context, letters []agent.MailMessage) error {
	seqs := make([]task.Seq, len(letters))
	for i, l := range letters {
		seqs[i] = task.Seq(l.Seq)
	}
	_ = failpoint.Hit("mail/told")
	mail, err := m.box.Mail(ctx)
	if err != nil {
		return err
	}
	m.s.hops.read(m.box.Owner(), mail, seqs)
	err = m.box.Acknowledge(ctx, seqs...)
	_ = failpoint.Hit("mail/acknowledged")
	return err
}

// render makes the text of a notice from the event that it belongs to: the task
// may have a further run by now.
func (s *Session) render(ctx context.Context, n lifecycle.Notice) (string, error) {
	r, ok := s.sup.Get(n.Task)
	if !ok || r.Run != n.Run || !r.Status.Terminal() { // the last for the moment before its end is to be seen
		e, err := s.log.Event(ctx, n.Seq)
		if err != nil {
			return "", err
		}
		r = e.Task
	}
	l := mailbox.Letter{Task: r, Limit: s.cfg.Limits.OutputChars}
	if r.Traits().Work == task.ByCommand {
		if r.Status == task.Failed {
			l.Tail = tail(r)
		}
		return mailbox.Render(l), nil
	}
	var err error
	if l.Answer, err = s.log.AnswerExcerpt(ctx, n.Run); err != nil {
		return "", err
	}
	if r.Team != nil {
		m, err := s.lastWord(ctx, r, l.Answer)
		return mailbox.RenderMessage(m), err
	}
	if r.Kind.IsAgent() {
		l.Transcript = s.cfg.Place.AgentTranscript(r.ID)
	}
	return mailbox.Render(l), nil
}

// linkTranscript makes the link to a transcript that stands beside the output file. It is
// made under another name first: a reader never finds it missing.
func linkTranscript(to, at string) error {
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

// ownServers are the MCP servers that a definition names, for an agent that me starts.
func (s *Session) ownServers(def subagent.Definition, me caller) []servers.Server {
	return s.servers.Own(def, me.access(), me.env, func(text string) { s.say(me.id, text) })
}

// origin is the folder that relative names in the settings are about: of an
// isolated agent not its own.
// modelName is the model that the agent calls now.
func (me caller) modelName() string {
	if me.live != nil {
		name, _, _ := me.live.get()
		return name
	}
	return me.model
}

func (me caller) origin() string { return cmp.Or(me.rules.Base, me.cwd) }

// within makes an absolute path without links of one that a file tool was given.
func (me caller) within(path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(me.cwd, path)
	}
	real, err := filepath.EvalSymlinks(path)
	return real, err == nil
}
