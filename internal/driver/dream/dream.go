// Package dream is the driver of the kind dream: an agent that reads earlier
// conversations and writes what they teach into the memory of the project.
//
// A run takes the consolidation lock, holds one conversation, and marks the lock as
// done, or rolls it back on every other path. At most one run at a time changes
// memory, a failed run leaves the lock free for the next, and its phase only moves
// forward. It prints nothing; its result is the memory itself.
//
// The caller supplies the memory and the tools of the agent, and decides when a
// dream is due.
package dream

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// The phases, in their order.
const (
	Starting = "starting"
	Updating = "updating" // since the first call that writes
)

// The triggers.
const (
	Manual = "manual"
	Idle   = "idle"
)

// ReasonHeld is why a dream failed that found another under way.
const ReasonHeld task.Reason = "consolidation_held"

// BoardTool is the name of the tool that changes the board.
const BoardTool = "context_board"

//go:embed dream.md
var system string

// System is the system prompt of the agent.
func System() string { return strings.TrimSpace(system) }

// Input is the input of a dream.
type Input struct {
	Trigger string `json:"trigger"` // Manual or Idle
}

// Lock is the right to consolidate. It is ended once, by Done or by Rollback.
type Lock interface {
	// Prior is the time of the last consolidation; zero: there was none.
	Prior() time.Time
	Done() error
	Rollback() error
}

// Assembly is the agent, put together and ready to run.
type Assembly struct {
	Config agent.Config
	Prompt string
	Close  func() error // lets go of what the agent holds; nil: nothing

	// Updated is called once when the end of a dream is durable that came to its
	// end: the files and the board that it has changed, without the folder, none
	// if there was nothing to do. It may be nil.
	Updated func(changed []string)
}

// Config configures a [Driver]. All of it is required.
type Config struct {
	// Acquire takes the lock without waiting. Its error is reported unchanged.
	Acquire func() (Lock, error)
	// Held reports whether an error of Acquire says that somebody else has it.
	Held     func(error) bool
	Assemble func(ctx context.Context, h task.Host, in Input, last time.Time) (*Assembly, error)
}

// Driver runs dreams.
type Driver struct{ cfg Config }

// New makes a driver.
func New(c Config) *Driver { return &Driver{c} }

// Kind is dream.
func (*Driver) Kind() task.Kind { return task.Dream }

// Check refuses input without a trigger.
func (*Driver) Check(input json.RawMessage) error {
	_, err := decode(input)
	return err
}

func decode(raw json.RawMessage) (Input, error) {
	var in Input
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, fmt.Errorf("dream input: %w", err)
	}
	if in.Trigger != Manual && in.Trigger != Idle {
		return in, fmt.Errorf("dream input: the trigger %.40q is neither %s nor %s", in.Trigger, Manual, Idle)
	}
	return in, nil
}

// checkpoint is the part of the lock in the record, for people: the lock itself has the
// data that undoes the claim of a dead host.
type checkpoint struct {
	Version int       `json:"v"`
	Prior   time.Time `json:"prior_consolidation,omitzero"`
}

// Run holds one conversation under the lock.
func (d *Driver) Run(ctx context.Context, h task.Host) (res task.Result, err error) {
	in, err := decode(h.Input())
	if err != nil {
		return res, err
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	lock, err := d.cfg.Acquire()
	if err != nil {
		reason := task.ReasonStart
		if d.cfg.Held(err) {
			reason = ReasonHeld
		}
		return res, &task.FailError{Reason: reason, Err: err}
	}
	done := false
	defer func() { // also while a panic goes by
		if !done {
			err = errors.Join(err, lock.Rollback())
		}
	}()
	state, err := json.Marshal(checkpoint{1, lock.Prior()})
	if err == nil {
		err = h.Checkpoint(ctx, state)
	}
	if err != nil {
		return res, ending(ctx, err)
	}
	res, err = d.converse(ctx, h, in, lock.Prior())
	if err != nil {
		return res, err
	}
	done = true
	return res, lock.Done()
}

// converse puts the agent together and lets it take its one turn.
func (d *Driver) converse(ctx context.Context, h task.Host, in Input, last time.Time) (res task.Result, err error) {
	a, err := d.cfg.Assemble(ctx, h, in, last)
	if err != nil {
		return res, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if a.Close != nil {
		defer func() { err = errors.Join(err, a.Close()) }()
	}
	w := &watcher{host: h, progress: task.Progress{Phase: Starting, Message: "starting"}}
	next := a.Config.On
	a.Config.On = func(e agent.Event) {
		w.on(e)
		if next != nil {
			next(e)
		}
	}
	a.Config.System = System()
	loop, err := agent.NewLoop(a.Config, nil)
	if err != nil {
		return res, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	w.totals = loop.Totals
	h.Progress(w.progress)
	start := time.Now()
	turn, err := loop.Turn(ctx, agent.TextBlock(a.Prompt))
	res = task.Result{Text: turn.Text, Usage: used(loop.Totals(), time.Since(start))}
	if err = ending(ctx, err); err == nil && a.Updated != nil {
		res.Settle = func() { a.Updated(w.changed) }
	}
	return res, err
}

// ending classes an error for the record.
func ending(ctx context.Context, err error) error {
	var limit *agent.LimitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &limit):
		return &task.FailError{Reason: task.Reason(limit.Limit), Err: err}
	}
	return &task.FailError{Reason: task.ReasonError, Err: err}
}

func used(t agent.Totals, took time.Duration) *task.Usage {
	u := t.Usage
	return &task.Usage{
		TotalTokens:  t.Context + u.OutputTokens,
		InputTokens:  u.InputTokens,
		OutputTokens: u.OutputTokens,
		CacheRead:    u.CacheReadTokens,
		CacheWrite:   u.CacheWriteTokens,
		ToolUses:     t.ToolUses,
		Turns:        t.Turns,
		DurationMS:   took.Milliseconds(),
	}
}

// watcher makes the progress of a dream of what its agent does. The conversation
// calls it one event at a time.
type watcher struct {
	host     task.Host
	totals   func() agent.Totals
	progress task.Progress
	changed  []string // that was written to, each once
}

func (w *watcher) on(e agent.Event) {
	switch e.Kind {
	case agent.ToolStartEvent:
		if writes(e.Call.Name) {
			w.progress.Phase = Updating
			w.progress.Message = "updating " + subject(e.Call.Input)
			w.host.Progress(w.progress)
		}
	case agent.ReplyDoneEvent:
		w.progress.TokenCount = w.totals().Tokens()
		w.host.Progress(w.progress)
	case agent.ToolDoneEvent:
		w.progress = w.progress.Add(task.Activity{ToolName: e.Call.Name, Input: e.Call.Input})
		w.host.Progress(w.progress)
		if what := changes(e); what != "" && !slices.Contains(w.changed, what) {
			w.changed = append(w.changed, what)
		}
	}
}

// writes reports tools that change the file that they name, in all dialects.
func writes(tool string) bool {
	return slices.Contains([]string{"edit", "write", "fileedit", "filewrite", "create"}, strings.ToLower(tool))
}

// changes returns the changes of a call, or "".
func changes(e agent.Event) string {
	if e.Output.IsError {
		return ""
	}
	if writes(e.Call.Name) {
		return subject(e.Call.Input)
	}
	var in struct {
		Action string `json:"action"`
	}
	if e.Call.Name == BoardTool && json.Unmarshal(e.Call.Input, &in) == nil && in.Action != "list" {
		return "the board"
	}
	return ""
}

// subject is the name of the file that a call is about.
func subject(input json.RawMessage) string {
	var in struct {
		Path string `json:"file_path"`
	}
	if json.Unmarshal(input, &in) != nil || in.Path == "" {
		return "memory"
	}
	return filepath.Base(in.Path)
}
