package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// helperWait is how long the helpers of a command that has ended by itself may take to end too.
// A process that was forked and has not called exec counts as a helper for settleTime, with a look
// every settleTick: its shell has ended before it became a helper or its own program.
const (
	helperWait = 2 * time.Second
	settleTime = 250 * time.Millisecond
	settleTick = 20 * time.Millisecond
)

// finish ends the remaining processes of a command that has ended by itself. A helper of the command reads
// from a pipe, as in a process substitution, and ends when nothing writes there any more. So all
// others are ended first, and then the helpers get [helperWait].
func (w *work) finish(ctx context.Context, e Ending, g *Group) Report {
	unsure := false
	w.choice.Spare = func(p Proc) bool {
		young := p.forked && time.Since(w.begun) < settleTime
		unsure = unsure || young
		return young || helps(p.PID, g.stdin)
	}
	w.run(ctx, e)
	patient, done := context.WithTimeout(ctx, helperWait)
	defer done()
	for patient.Err() == nil {
		if len(w.spared) == 0 {
			return w.report
		}
		wait, done := patient, func() {}
		if unsure {
			wait, done = context.WithTimeout(patient, settleTick)
		}
		for _, p := range w.spared {
			await(wait, p.Identity())
		}
		done()
		unsure = false
		w.run(ctx, e)
	}
	w.choice.Spare, w.group, w.report.Left = nil, g, nil
	return w.run(ctx, e)
}

// await returns when a process has ended, or with ctx.
func await(ctx context.Context, id Identity) {
	h, err := open(id)
	switch {
	case errors.Is(err, ErrGone):
	case err != nil:
		<-ctx.Done() // it cannot be awaited, only looked up again
	default:
		defer h.close()
		_ = h.wait(ctx)
	}
}

// mostNamed limits the processes that a note names, and nameChars each of their commands.
const (
	mostNamed = 5
	nameChars = 60
)

// Note lists in one line, for the owner of the command, the processes that were ended with it; empty: none.
func (r Report) Note() string {
	if len(r.Ended) == 0 {
		return ""
	}
	names := make([]string, 0, mostNamed)
	for _, p := range r.Ended[:min(len(r.Ended), mostNamed)] {
		name := []rune(p.Command)
		if len(name) > nameChars {
			name = append(name[:nameChars-1], '…')
		}
		names = append(names, fmt.Sprintf("%s, pid %d", string(name), p.PID))
	}
	if more := len(r.Ended) - mostNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	noun := "processes"
	if len(r.Ended) == 1 {
		noun = "process"
	}
	return fmt.Sprintf("ended with the command: %d %s (%s)", len(r.Ended), noun, strings.Join(names, "; "))
}
