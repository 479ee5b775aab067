package hook

import (
	"errors"
	"strconv"
)

// Ran is a hook that runs, as those who watch it see it.
type Ran struct {
	ID    string // of this run, unique in its runner
	Event Event
	About string // what the event is about, such as the name of a tool; empty: nothing
	Done  bool   // it has ended, and what follows is set

	Stdout, Stderr string
	Code           *int   // of its exit; nil: it is not a command, or continues in the background
	Outcome        string // success, error or cancelled
}

// watched tells those who watch of a hook that begins, and returns what tells of its end.
func (r *Runner) watched(h hook, e Event, fields map[string]any) (ended func(result)) {
	if r.base.Watch == nil {
		return func(result) {}
	}
	r.mu.Lock()
	r.ran++
	seen := Ran{ID: string(e) + "-" + strconv.Itoa(r.ran), Event: e}
	r.mu.Unlock()
	if name, ok := fields["tool_name"].(string); ok {
		seen.About = name
	}
	r.base.Watch(seen)
	return func(res result) {
		seen.Done, seen.Stdout, seen.Stderr, seen.Outcome = true, res.stdout, res.stderr, "success"
		if h.call == nil && !res.async && res.err == nil {
			seen.Code = &res.code
		}
		switch {
		case errors.Is(res.err, errInterrupted):
			seen.Outcome = "cancelled"
		case res.err != nil:
			seen.Outcome, seen.Stderr = "error", seen.Stderr+res.err.Error()
		case res.code != 0:
			seen.Outcome = "error"
		}
		r.base.Watch(seen)
	}
}
