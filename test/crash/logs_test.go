//go:build linux

package crash

import (
	"context"
	"errors"
	"path/filepath"
	"sort"
	"strings"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/task"
)

// logs opens the log of every session.
func (p *place) logs(look func(session string, log *journal.Journal)) {
	p.Helper()
	for _, file := range glob(p.Work, "state/projects/*/*/session.db") {
		log, err := journal.Open(file, journal.Options{ReadOnly: true})
		if errors.Is(err, journal.ErrDamaged) {
			p.Errorf("a crash has damaged a log: %v", err)
		}
		if err != nil {
			continue // its host was killed while it made it
		}
		look(filepath.Base(filepath.Dir(file)), log)
		if err := log.Close(); err != nil {
			p.Error(err)
		}
	}
}

// records are the tasks as the logs have them.
func (p *place) records() (all []task.Record) {
	p.logs(func(_ string, log *journal.Journal) {
		states, err := log.Tasks(context.Background())
		if err != nil {
			p.Errorf("read log: %v", err)
		}
		for _, s := range states {
			all = append(all, s.Task)
		}
	})
	return all
}

// state is a short text of the records.
func (p *place) state() string {
	var out []string
	for _, r := range p.records() {
		name := r.Name
		switch {
		case r.ID == r.Session:
			name = "conversation"
		case name == "":
			name = string(r.Kind)
		}
		if strings.HasPrefix(name, "probe") {
			continue
		}
		text := name + " " + string(r.Status)
		if r.Stopping {
			text += " stopping"
		}
		if r.Cause != nil {
			text += ":" + string(r.Cause.Reason) + r.Cause.Signal
		}
		out = append(out, text)
	}
	sort.Strings(out)
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// checkLogs holds each log to the rules of a life: numbers only grow, and a run
// ends once, with nothing behind it.
func (p *place) checkLogs() {
	p.Helper()
	p.logs(func(session string, log *journal.Journal) {
		var last task.Seq
		ended := map[task.RunID]task.Verb{}
		for e, err := range log.Events(context.Background(), 0) {
			if err != nil {
				p.Errorf("read log of %s: %v", session, err)
				return
			}
			if e.Seq <= last {
				p.Errorf("event %d of %s comes after %d", e.Seq, session, last)
			}
			last = e.Seq
			if was, over := ended[e.Task.Run]; over {
				p.Errorf("task %s: %s after its end by %s", e.Task.ID, e.Verb, was)
			}
			if e.Task.Status.Terminal() {
				ended[e.Task.Run] = e.Verb
			}
		}
	})
}
