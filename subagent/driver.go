package subagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// Assembly is an agent that is put together and ready to run.
type Assembly struct {
	Config  agent.Config
	History []agent.Message // of an earlier run
	Close   func() error    // lets go of what the agent holds; nil: nothing
}

// Assemble puts an agent together for one run of a task.
type Assemble func(ctx context.Context, h task.Host, in Input) (*Assembly, error)

// Driver runs agents as tasks of kind local_agent.
type Driver struct{ assemble Assemble }

// New makes a driver.
func New(a Assemble) *Driver { return &Driver{assemble: a} }

// Kind is local_agent.
func (d *Driver) Kind() task.Kind { return task.LocalAgent }

// Check refuses input without a prompt.
func (d *Driver) Check(input json.RawMessage) error {
	_, err := decode(input)
	return err
}

// Run holds one conversation to its end.
func (d *Driver) Run(ctx context.Context, h task.Host) (res task.Result, err error) {
	in, err := decode(h.Input())
	if err != nil {
		return task.Result{}, err
	}
	a, err := d.assemble(ctx, h, in)
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if a.Close != nil {
		defer func() { err = errors.Join(err, a.Close()) }()
	}
	w := &watcher{host: h, out: h.Output(), next: a.Config.On}
	a.Config.On = w.on
	loop, err := agent.NewLoop(a.Config, a.History)
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	w.loop = loop
	start := time.Now()
	turn, err := loop.Turn(ctx, agent.TextBlock(in.Prompt))
	res = task.Result{Text: turn.Text, Usage: usage(loop.Totals(), time.Since(start))}
	return res, ending(ctx, err)
}

// ending classes the error of a turn. Only a turn that came to its end is
// completed; what the model said is never asked.
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

func usage(t agent.Totals, took time.Duration) *task.Usage {
	return &task.Usage{TotalTokens: t.Tokens(), InputTokens: t.Usage.InputTokens, OutputTokens: t.Usage.OutputTokens,
		CacheRead: t.Usage.CacheReadTokens, CacheWrite: t.Usage.CacheWriteTokens, ToolUses: t.ToolUses, Turns: t.Turns, DurationMS: took.Milliseconds()}
}

// watcher turns the events of the loop into output and progress. Its loop calls
// it one event at a time.
type watcher struct {
	host     task.Host
	out      io.Writer
	loop     *agent.Loop
	next     func(agent.Event)
	progress task.Progress
	midLine  bool
}

func (w *watcher) on(e agent.Event) {
	switch e.Kind {
	case agent.PartEvent:
		if e.Part.Kind == agent.TextPart {
			w.print(e.Part.Text)
		}
	case agent.BlockEvent:
		if e.Block.Type == "text" && w.midLine {
			w.print("\n")
		}
	case agent.ReplyDoneEvent:
		w.progress.TokenCount = w.loop.Totals().Tokens()
		w.host.Progress(w.progress)
	case agent.ToolStartEvent:
		w.print(fmt.Sprintf("[%s %s]\n", e.Call.Name, brief(e.Call.Input)))
	case agent.ToolDoneEvent:
		w.print("\n[Tool completed]\n" + e.Output.Text + "\n")
		w.progress = w.progress.Add(task.Activity{ToolName: e.Call.Name, Input: e.Call.Input})
		w.host.Progress(w.progress)
	}
	if w.next != nil {
		w.next(e)
	}
}

// print writes to the output file. What cannot be written is lost there and
// kept by the transcript, which refuses to go on without a place on the disk.
func (w *watcher) print(text string) {
	if text == "" {
		return
	}
	_, _ = io.WriteString(w.out, text)
	w.midLine = text[len(text)-1] != '\n'
}

// brief is the beginning of a tool's input, for people.
func brief(input json.RawMessage) string {
	const most = 200
	if len(input) <= most {
		return string(input)
	}
	cut := most
	for cut > 0 && input[cut]&0xC0 == 0x80 {
		cut--
	}
	return string(input[:cut]) + "…"
}
