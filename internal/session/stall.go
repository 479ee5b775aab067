package session

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/stall"
	"github.com/drover-dev/drover/task"
)

// stallLooks is how often an output, or an agent, is looked at in the time after
// which it counts as quiet.
const stallLooks = 9

// watchStalls tells owners of background commands that seem to wait for an
// answer, and of agents of which nothing is heard. While there are none it waits for
// an event, and costs nothing.
func (s *Session) watchStalls() {
	rules, watched, table := stall.New(), map[task.RunID]*stall.Watch{}, &process.Table{}
	every, traces := s.cfg.Limits.StallAfter, map[task.RunID]*trace{}
	if after := s.cfg.Agents.StallAfter; after > 0 {
		every = min(every, after)
	}
	for {
		grown := s.log.Grown()
		now, heard := map[task.RunID]*stall.Watch{}, map[task.RunID]*trace{}
		for _, r := range s.sup.List(0) {
			w, look := follow(watched[r.Run], r)
			if w != nil {
				now[r.Run] = w
			}
			if look {
				s.lookAt(r, w, rules, table)
			}
			if t := s.listen(traces[r.Run], r); t != nil {
				heard[r.Run] = t
			}
		}
		watched, traces = now, heard
		if len(watched)+len(traces) == 0 {
			select {
			case <-grown:
			case <-s.closes:
				return
			}
		}
		look := time.NewTimer(every / stallLooks)
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
	return r.Traits().Work == task.ByCommand && r.Status == task.Running && r.Backgrounded && !r.Paused && !r.Stopping
}

// follow is the watch of a run after one that it has, or nil, and whether its output
// is to be looked at now. What was told of is not told of again, also where it has
// stood still meanwhile, or an earlier host has told of it.
func follow(w *stall.Watch, r task.Record) (*stall.Watch, bool) {
	switch {
	case r.Traits().Work != task.ByCommand || r.Status != task.Running:
		return nil, false
	case stallable(r) && w == nil:
		w = &stall.Watch{}
		if r.Progress != nil && r.Progress.Summary != "" {
			w.Over()
		}
	case !stallable(r) && w != nil:
		w.Skip()
	}
	return w, stallable(r)
}

func (s *Session) lookAt(r task.Record, w *stall.Watch, rules *stall.Rules, table *process.Table) {
	info, err := s.cfg.Place.Below().For(r.OutputFile).Lstat(r.OutputFile)
	if err != nil || w.Told() {
		return
	}
	quiet := w.Quiet(time.Now(), info.Size(), s.cfg.Limits.StallAfter)
	if r.TTY && r.Process != nil {
		w.Saw(process.AwaitsKeys(table, process.Identity{PID: r.Process.PID, Start: r.Process.Start, Boot: r.Process.Boot}))
	}
	if !quiet {
		return
	}
	tail, _, err := spool.Tail(r.OutputFile, stall.TailBytes, stall.TailBytes)
	if err != nil {
		return
	}
	line, asks := rules.Waiting(tail)
	if !asks && !w.Reads() {
		return
	}
	w.Over()
	s.tellStall(r, excerpt.Line(line, 200), asks, w.Reads())
}

// tellStall says that a command waits. What its text shows is a guess, what the
// kernel shows is none.
func (s *Session) tellStall(r task.Record, line string, asks, reads bool) {
	does, ends := "seems to wait for an answer", " and ends with\n"+line
	switch {
	case !asks:
		does, ends = "reads its terminal", ""
	case reads:
		does = "waits for an answer"
	}
	summary := "It " + does
	if asks {
		summary += ": " + line
	}
	_ = s.sup.Summarize(context.Background(), r.ID, summary) // an end that came first refuses it
	if r.Owner == "" {
		return
	}
	mend := "It goes on waiting. Stop it and start it so that it does not ask, or with its answer on stdin."
	if r.TTY {
		mend = fmt.Sprintf("It goes on waiting. Answer it by SendMessage to %s, which types your text and Enter, or stop it.", r.ID)
	}
	text := fmt.Sprintf("Background command %q %s, which nobody gives it: its output has not grown for %s%s\n%s",
		excerpt.Line(r.Description, 60), does, s.cfg.Limits.StallAfter, ends, mend)
	if !asks {
		text = fmt.Sprintf("Background command %q %s, where nobody types: its output has not grown for %s.\n%s",
			excerpt.Line(r.Description, 60), does, s.cfg.Limits.StallAfter, mend)
	}
	_, _ = s.sup.Post(context.Background(), task.Message{To: r.Owner, From: string(r.ID), Kind: task.Stalled, Text: text, Priority: task.Next}) // a full mailbox has enough to read
}
