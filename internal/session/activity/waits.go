package activity

import (
	"time"

	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/stall"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Waits returns the input that a command waits for, if that was reported, and since when: its output has
// not grown since then, and still ends with the question.
func (w *Watch) Waits(r task.Record) (line string, since time.Time, ok bool) {
	if !stallable(r) || r.Progress == nil || r.Progress.Summary == "" || r.OutputFile == "" {
		return "", since, false
	}
	info, err := w.place.Below().For(r.OutputFile).Lstat(r.OutputFile)
	if err != nil || time.Since(info.ModTime()) < w.opt.Tasks.StallAfter {
		return "", since, false
	}
	tail, _, err := spool.Tail(r.OutputFile, stall.TailBytes, stall.TailBytes)
	if err != nil {
		return "", since, false
	}
	text, asks := stall.New().Waiting(tail)
	switch {
	case asks:
		return "it waits for an answer: " + excerpt.Line(text, 200), info.ModTime().UTC(), true
	case r.TTY && r.Progress.Summary == readsTerminal:
		return r.Progress.Summary, info.ModTime().UTC(), true
	}
	return "", since, false
}

// readsTerminal is the report about a command that asks nothing and reads its terminal.
const readsTerminal = "It reads its terminal"
