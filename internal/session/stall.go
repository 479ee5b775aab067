package session

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/drover-dev/drover/internal/excerpt"
	"github.com/drover-dev/drover/internal/spool"
	"github.com/drover-dev/drover/internal/stall"
	"github.com/drover-dev/drover/task"
)

// stallLooks is how often the size of an output is looked at in the time after
// which it counts as quiet.
const stallLooks = 9

// watchStalls tells owners of background commands that seem to wait for an
// answer. While there are none it waits for an event, and costs nothing.
func (s *Session) watchStalls() {
	rules, watched := stall.New(), map[task.RunID]*stall.Watch{}
	for {
		grown := s.log.Grown()
		now := map[task.RunID]*stall.Watch{}
		for _, r := range s.sup.List(0) {
			if !stallable(r) {
				continue
			}
			w := watched[r.Run]
			if w == nil {
				w = &stall.Watch{}
			}
			now[r.Run] = w
			s.lookAt(r, w, rules)
		}
		watched = now
		if len(watched) == 0 {
			select {
			case <-grown:
			case <-s.closes:
				return
			}
		}
		look := time.NewTimer(s.cfg.Limits.StallAfter / stallLooks)
		select {
		case <-look.C:
		case <-s.closes:
			look.Stop()
			return
		}
	}
}

// stallable says whose output is watched: nobody sees what a command in the
// background asks. One that stands still asks nothing.
func stallable(r task.Record) bool {
	return r.Kind == task.LocalBash && r.Status == task.Running && r.Backgrounded && !r.Paused && !r.Stopping
}

func (s *Session) lookAt(r task.Record, w *stall.Watch, rules *stall.Rules) {
	info, err := os.Lstat(r.OutputFile)
	if err != nil || !w.Quiet(time.Now(), info.Size(), s.cfg.Limits.StallAfter) {
		return
	}
	tail, _, err := spool.Tail(r.OutputFile, stall.TailBytes, stall.TailBytes)
	if err != nil {
		return
	}
	line, waiting := rules.Waiting(tail)
	if !waiting {
		return
	}
	w.Over()
	line = excerpt.Line(line, 200)
	_ = s.sup.Summarize(context.Background(), r.ID, "It seems to wait for an answer: "+line) // an end that came first refuses it
	if r.Owner == "" {
		return
	}
	text := fmt.Sprintf("Background command %q seems to wait for an answer, which nobody gives it: its output has not grown for %s and ends with\n%s\n"+
		"It goes on waiting. Stop it and start it so that it does not ask, or with its answer on stdin.",
		excerpt.Line(r.Description, 60), s.cfg.Limits.StallAfter, line)
	_, _ = s.sup.Post(context.Background(), task.Message{To: r.Owner, From: string(r.ID), Kind: task.Stalled, Text: text, Priority: task.Next}) // a full mailbox has enough to read
}
