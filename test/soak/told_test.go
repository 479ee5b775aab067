//go:build linux

package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
)

// following reads every event of a host, over one stream after the other.
type following struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	seen []task.Seq
}

func (s *soak) follow(h *hosted) *following {
	ctx, cancel := context.WithCancel(s.Context())
	f := &following{cancel: cancel}
	f.wg.Go(func() {
		for after := task.Seq(0); ctx.Err() == nil && harness.Alive(h.pid); {
			n := 0
			for e, err := range h.client.Events(ctx, after) {
				if err != nil || n == 500 { // it comes again where it was
					break
				}
				n++
				after = e.Seq
				f.mu.Lock()
				f.seen = append(f.seen, e.Seq)
				f.mu.Unlock()
				s.tally.add("events read")
			}
		}
	})
	return f
}

func (f *following) stop() {
	f.cancel()
	f.wg.Wait()
}

// told reads what a host has left, and looks whether each event was read once, and each
// notification and message was told once to whom it was for.
func (s *soak) told(h *hosted) {
	j, err := journal.Open(filepath.Join(h.place, "session.db"), journal.Options{ReadOnly: true})
	if err != nil {
		s.tally.bad("the journal of the %s host: %v", h.name, err)
		return
	}
	defer j.Close()
	ends := s.eventsOf(h, j)
	notifications, err := j.Notifications(context.Background())
	if err != nil {
		s.tally.bad("notifications of the %s host: %v", h.name, err)
	}
	letters := map[task.ID]map[task.Seq]int{}
	over := overAt(ends, h.session)
	for _, n := range notifications {
		r, there := ends[n.Run]
		switch {
		case !there:
			s.tally.bad("a notification of run %s, which has not ended", n.Run)
			continue
		case known(r): // nobody was to be told
			continue
		}
		delete(ends, n.Run)
		if letters[n.Owner] == nil {
			letters[n.Owner] = s.lettersOf(h, n.Owner)
		}
		switch times := letters[n.Owner][n.Seq]; {
		case times == 1 && n.Acked:
			s.tally.add("notifications told")
		case times == 0 && !n.Acked && (n.Owner != h.session || unawaited(r, over)): // whoever it is for ended first, and has it when it goes on
			s.tally.add("notifications that wait for an agent")
		default:
			s.tally.bad("the notification of %s (%s %q) to %s was told %d times, acknowledged %v", r.ID, r.Kind, r.Description, n.Owner, times, n.Acked)
		}
	}
	for run, r := range ends {
		if !known(r) {
			s.tally.bad("the end of %s, run %s, has no notification", r.ID, run)
		}
	}
	for owner := range letters {
		if unread, err := j.Unread(context.Background(), owner); owner == h.session && (err != nil || len(unread) > 0) {
			s.tally.bad("%d messages to %s are unread, %v", len(unread), owner, err)
		}
		for seq, times := range letters[owner] {
			if times > 1 {
				s.tally.bad("mail %d was told %d times to %s", seq, times, owner)
			}
		}
	}
	s.tally.mu.Lock()
	s.tally.n["messages told"] += len(letters[h.session]) - noticesOf(notifications, h.session, letters[h.session])
	s.tally.mu.Unlock()
}

// overAt is when a conversation ended for good.
func overAt(ends map[task.RunID]task.Record, session task.ID) (at time.Time) {
	for _, r := range ends {
		if r.ID == session && r.EndTime.After(at) {
			at = *r.EndTime
		}
	}
	return at
}

// unawaited is whether a monitor ended when the conversation was over, which waits for none,
// or had looked for mail for the last time and was about to be.
func unawaited(r task.Record, over time.Time) bool {
	return r.Kind == task.MonitorMCP && !over.IsZero() && r.EndTime.After(over.Add(-time.Second))
}

// noticesOf is how much of what was told are notifications.
func noticesOf(all []lifecycle.Notification, owner task.ID, told map[task.Seq]int) (n int) {
	for _, one := range all {
		if one.Owner == owner && told[one.Seq] > 0 {
			n++
		}
	}
	return n
}

// known is when nobody is told of an end.
func known(r task.Record) bool {
	return r.Owner == "" || r.Silent || !r.Backgrounded || r.Cause.Actor == task.ByModel
}

// eventsOf compares the events that were read with those that there are, and returns
// what each run ended as.
func (s *soak) eventsOf(h *hosted, j *journal.Journal) map[task.RunID]task.Record {
	ends := map[task.RunID]task.Record{}
	seen := s.events[h].seen
	at := 0
	for after := task.Seq(0); ; {
		page, err := j.Since(context.Background(), after)
		if err != nil {
			s.tally.bad("events of the %s host: %v", h.name, err)
			return ends
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			after = e.Seq
			if at < len(seen) && seen[at] == e.Seq {
				at++
			} else if at < len(seen) {
				s.tally.bad("the %s host: event %d was read where %d was to come", h.name, seen[at], e.Seq)
				at = len(seen)
			}
			if !e.Task.Status.Terminal() {
				continue
			}
			if _, twice := ends[e.Task.Run]; twice {
				s.tally.bad("run %s of %s has two ends", e.Task.Run, e.Task.ID)
			}
			ends[e.Task.Run] = e.Task
			s.countEnd(h, e.Task)
		}
	}
	if at < len(seen) {
		s.tally.bad("the %s host: %d events were read and are not there", h.name, len(seen)-at)
	}
	return ends
}

// countEnd counts what the conversation has had done.
func (s *soak) countEnd(h *hosted, r task.Record) {
	what, ok := map[task.Kind]string{task.LocalBash: "background commands", task.LocalAgent: "background agents",
		task.MonitorMCP: "background monitors", task.LocalWorkflow: "background workflows"}[r.Kind]
	if ok && h == s.talk && r.Owner == h.session && r.Backgrounded {
		s.tally.add(what)
	}
}

// lettersOf is how often the transcript of an owner has each piece of mail.
func (s *soak) lettersOf(h *hosted, owner task.ID) map[task.Seq]int {
	path := filepath.Join(h.place, "subagents", "agent-"+string(owner)+".jsonl")
	if owner == h.session {
		path = filepath.Join(h.place, "transcript.jsonl")
	}
	out := map[task.Seq]int{}
	f, err := os.Open(path)
	if err != nil {
		s.tally.bad("%v", err)
		return out
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var line struct {
			Type string     `json:"entry_type"`
			Mail []task.Seq `json:"mail"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			s.tally.bad("%s: %v", path, err)
		}
		if line.Type != "user" { // a summary names all that was told before it
			continue
		}
		for _, seq := range line.Mail {
			out[seq]++
		}
	}
	if err := lines.Err(); err != nil {
		s.tally.bad("%s: %v", path, err)
	}
	return out
}
