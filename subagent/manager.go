package subagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// Engine is what a [Manager] runs agents with. Its methods may be called by
// several goroutines.
type Engine interface {
	// Launch starts an agent, or a further run of one, and returns when that is
	// durably recorded; ctx bounds the recording and nothing else. Errors that a
	// caller can decide by: [*UnknownTypeError], [*LimitError], [*task.MoveError]
	// for the resumption of what has not ended, and [ErrClosed].
	Launch(ctx context.Context, l Launch) (task.Record, error)
	// Agents are all agents that it knows, newest first.
	Agents() []task.Record
	// Agent is the agent with an ID.
	Agent(id task.ID) (task.Record, bool)
	// Done is closed when the present run of an agent has ended.
	Done(id task.ID) <-chan struct{}
	// Text is the answer of an agent that has ended; of one that has not, or has
	// none, the end of its output.
	Text(ctx context.Context, r task.Record) (string, error)
	// Stop ends an agent with all that is under it, and returns when nothing is
	// left, or says in the receipt what is.
	Stop(ctx context.Context, id task.ID) (task.Receipt, error)
}

// Launch is one agent as a [Manager] asks its engine for it.
type Launch struct {
	Input
	Name        string // wanted; made unique
	Description string
	Background  bool
	Parent      task.ID // of the agent whose tool asks; empty: none
	Resume      task.ID // of the agent that gets a further run; empty: a new one

	Agents Catalog // the types that this agent and those under it may be of
	Hooks  Hooks   // for this agent and those under it; nil: none
}

// Hooks are functions of the program that take part in the life of agents. They
// are called by several goroutines, and must return when ctx ends. For each
// start one stop is told that cannot be, or was not, vetoed.
type Hooks interface {
	// SubagentStart is told before the first turn of a run. Its text, if any, is
	// read by the agent before its prompt.
	SubagentStart(ctx context.Context, a HookAgent) (more string)
	// SubagentStop is told when the agent is about to end. A reason makes the
	// agent go on with that reason as its next prompt, unless end.Err is set, or
	// it has been sent on eight times in a row; an empty one lets it end.
	SubagentStop(ctx context.Context, a HookAgent, end HookEnd) (reason string)
}

// HookAgent is the agent that [Hooks] are told of.
type HookAgent struct {
	ID         task.ID
	Type       string
	Transcript string // absolute path
}

// HookEnd is how an agent is about to end.
type HookEnd struct {
	Answer string // the last thing that it said
	Again  bool   // a hook has sent it on before
	Err    string // it was stopped or has failed, and cannot be sent on; empty: it ends by itself
}

// Errors that callers decide by. What wraps the first two ends with the ID.
var (
	// ErrNotFound is an ID that no agent has.
	ErrNotFound = errors.New("unknown task_id")
	// ErrTimeout is a wait whose time is up; the agent goes on.
	ErrTimeout = errors.New("timeout waiting for task")
	// ErrClosed is a start in a session, or below an agent, that ends.
	ErrClosed = errors.New("no further agent is started")
)

// LimitError is a start that a limit forbids.
type LimitError struct {
	// depth, per_root, per_session, rate, queue for agents at work and waiting, max_budget_usd, or max_budget_tokens
	Limit string
	N     int
	Wait  time.Duration // of rate: until the next may be started
	Err   error         // with the text
}

func (e *LimitError) Error() string { return e.Err.Error() }
func (e *LimitError) Unwrap() error { return e.Err }

// EndError is an agent that has ended otherwise than well.
type EndError struct {
	ID     task.ID
	Status task.Status // failed or killed
	Cause  task.Cause
	Detail string // of a failure
}

func (e *EndError) Error() string {
	text := fmt.Sprintf("agent %s: %s (%s)", e.ID, e.Status, e.Cause.Reason)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// AgentInput is what [Manager.Spawn] is asked for. The JSON names are those of
// the Agent tool.
type AgentInput struct {
	Prompt          string `json:"prompt"`
	Type            string `json:"subagent_type,omitempty"` // empty: [DefaultType], or that of the resumed agent
	Description     string `json:"description,omitempty"`   // a few words, for people; empty: the beginning of the prompt
	Name            string `json:"name,omitempty"`          // made unique; empty: the type
	Model           string `json:"model,omitempty"`         // empty: that of the definition, or of the engine
	Resume          string `json:"resume,omitempty"`        // ID of an ended agent, which goes on from its transcript
	RunInBackground bool   `json:"run_in_background,omitempty"`
	MaxTurns        int    `json:"max_turns,omitempty"` // 0: that of the definition, or of the engine
	Mode            string `json:"mode,omitempty"`      // permission mode; never widens that of the session
}

// AgentStatus is an agent as it is now.
type AgentStatus struct {
	ID         string
	Type       string
	Name       string
	Definition Definition // of the type as the manager knows it
	State      task.Status
	StartedAt  time.Time       // zero while it waits for a place
	Done       <-chan struct{} // closed when its present run has ended
	Record     task.Record     // all else that is known of it
}

// Manager starts agents, and looks after them, for a program. Its methods may be
// called by several goroutines. It keeps nothing but what it was made with: the
// agents are those of its engine, which all managers of one engine share.
type Manager struct {
	engine Engine
	agents Catalog
	hooks  Hooks
}

// NewManager makes a manager of the agents that are known to it. It starts
// nothing, and needs no closing. hooks may be nil.
func NewManager(e Engine, agents Catalog, hooks Hooks) *Manager {
	return &Manager{engine: e, agents: agents, hooks: hooks}
}

// Spawn starts an agent and returns its ID: in the background as soon as it is
// durably recorded, else when it has ended, well or not; [Manager.GetOutput]
// tells how. ctx bounds the start and the waiting, not the agent: with the cause
// of a ctx that ended too early comes the ID of an agent that goes on.
//
// In a tool that was called with ctx, or a context made from it, the agent is
// below the agent that called the tool: it counts as nested, and is stopped with it.
func (m *Manager) Spawn(ctx context.Context, in AgentInput) (id string, err error) {
	l := Launch{
		Name:        in.Name,
		Description: in.Description,
		Background:  in.RunInBackground,
		Agents:      m.agents,
		Hooks:       m.hooks,
		Input:       Input{Type: in.Type, Prompt: in.Prompt, Model: in.Model, MaxTurns: in.MaxTurns, PermissionMode: in.Mode},
	}
	if in.Resume != "" {
		old, err := m.find(in.Resume)
		if err != nil {
			return "", err
		}
		l.Resume = old.ID
		if l.Type == "" {
			l.Type = old.AgentType
		}
		if l.Model == "" {
			l.Model = old.Model
		}
	}
	caller := callerOf(ctx)
	if caller != nil {
		l.Parent = caller.Record().ID
	}
	rec, err := m.engine.Launch(ctx, l)
	if err != nil || in.RunInBackground {
		return string(rec.ID), err
	}
	if caller != nil { // which gives its place away while it waits
		_, err = caller.Await(ctx, rec.ID)
		return string(rec.ID), err
	}
	select {
	case <-m.engine.Done(rec.ID):
		return string(rec.ID), nil
	case <-ctx.Done():
		return string(rec.ID), context.Cause(ctx)
	}
}

// GetOutput returns the answer of an agent that has ended; beside it, if the
// agent has not ended well, an [*EndError]. With block it waits for the end, for
// timeout at most (0: as long as it takes), and returns what there is so far
// with [ErrTimeout] when the time is up. Without block it returns what there is.
func (m *Manager) GetOutput(taskID string, block bool, timeout time.Duration) (string, error) {
	rec, err := m.find(taskID)
	if err != nil {
		return "", err
	}
	late := block && !m.wait(rec.ID, timeout)
	if now, ok := m.engine.Agent(rec.ID); ok {
		rec = now
	}
	text, err := m.engine.Text(context.Background(), rec)
	switch {
	case err != nil:
		return text, fmt.Errorf("read output of agent %s: %w", rec.ID, err)
	case rec.Status == task.Failed || rec.Status == task.Killed:
		return text, ended(rec)
	case late && !rec.Status.Terminal():
		return text, fmt.Errorf("%w %s", ErrTimeout, rec.ID)
	}
	return text, nil
}

// wait reports whether the agent has ended in time.
func (m *Manager) wait(id task.ID, timeout time.Duration) bool {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-m.engine.Done(id):
		return true
	case <-late:
		return false
	}
}

func ended(r task.Record) error {
	e := &EndError{ID: r.ID, Status: r.Status, Detail: r.Error}
	if r.Cause != nil {
		e.Cause = *r.Cause
	}
	return e
}

// Stop ends an agent with all that is under it, and returns when nothing of it
// is left. Stopping what has ended changes nothing and is no error.
func (m *Manager) Stop(taskID string) error {
	rec, err := m.find(taskID)
	if err != nil {
		return err
	}
	receipt, err := m.engine.Stop(context.Background(), rec.ID)
	if err != nil {
		return fmt.Errorf("stop agent %s: %w", rec.ID, err)
	}
	var errs []error
	for _, left := range receipt.Survivors {
		errs = append(errs, fmt.Errorf("stop agent %s: %s is still there: %s", rec.ID, left.Task, left.Why))
	}
	return errors.Join(errs...)
}

// List returns the agents of the engine, newest first, also those that have
// ended and those that agents have started.
func (m *Manager) List() []AgentStatus {
	recs := m.engine.Agents()
	out := make([]AgentStatus, len(recs))
	for i, r := range recs {
		out[i] = m.status(r)
	}
	return out
}

func (m *Manager) status(r task.Record) AgentStatus {
	s := AgentStatus{
		ID:         string(r.ID),
		Type:       r.AgentType,
		Name:       r.Name,
		Definition: Definition{Name: r.AgentType},
		State:      r.Status,
		Done:       m.engine.Done(r.ID),
		Record:     r,
	}
	if d, err := m.agents.Find(r.AgentType); err == nil {
		s.Definition = d
	}
	if r.StartTime != nil {
		s.StartedAt = *r.StartTime
	}
	return s
}

// Done returns a channel that is closed when the present run of an agent has
// ended. For an ID that no agent has it is closed already.
func (m *Manager) Done(taskID string) <-chan struct{} {
	if rec, err := m.find(taskID); err == nil {
		return m.engine.Done(rec.ID)
	}
	over := make(chan struct{})
	close(over)
	return over
}

func (m *Manager) find(taskID string) (task.Record, error) {
	if rec, ok := m.engine.Agent(task.ID(taskID)); ok {
		return rec, nil
	}
	return task.Record{}, fmt.Errorf("%w: %s", ErrNotFound, taskID)
}

// With returns the catalog with further definitions, which go before those of
// the same name. It refuses what cannot work.
func (c Catalog) With(defs ...Definition) (Catalog, error) {
	var errs []error
	seen := map[string]bool{}
	for _, d := range defs {
		switch {
		case Normalize(d.Name) == "":
			errs = append(errs, errors.New("an agent definition has no name"))
		case strings.TrimSpace(d.Prompt) == "":
			errs = append(errs, fmt.Errorf("agent definition %s: the prompt is empty", d.Name))
		case seen[Normalize(d.Name)]:
			errs = append(errs, fmt.Errorf("agent definition %s: there are two of this name", d.Name))
		}
		seen[Normalize(d.Name)] = true
	}
	if len(errs) > 0 {
		return c, errors.Join(errs...)
	}
	return NewCatalog(slices.Concat(c.All(), defs)...), nil
}

// callerKey is the key of a context that an agent runs under.
type callerKey struct{}

// within marks all that an agent does as its doing.
func within(ctx context.Context, h task.Host) context.Context {
	return context.WithValue(ctx, callerKey{}, h)
}

// callerOf is the agent whose tool was called with ctx; nil: none.
func callerOf(ctx context.Context) task.Host {
	h, _ := ctx.Value(callerKey{}).(task.Host)
	return h
}
