package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// keys is what somebody types who writes a text: each line is ended by Enter.
func keys(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\r") + "\r"
}

// beginWait is how long who types waits for a command that is about to begin.
const beginWait = 5 * time.Second

// begun is the task once it has begun, or as it is when that takes long.
func (s *Session) begun(ctx context.Context, r task.Record) task.Record {
	limit, cancel := context.WithTimeout(ctx, beginWait)
	defer cancel()
	for {
		grown := s.log.Grown()
		r = s.tree.Latest(r.ID)
		if r.Status != task.Pending {
			return r
		}
		select {
		case <-grown:
		case <-limit.Done():
			return r
		}
	}
}

// typeInto gives a command with a terminal what somebody outside types. It is
// handed on and kept nowhere: it may be a password.
func (s *Session) typeInto(ctx context.Context, r task.Record, req control.SendRequest) error {
	r = s.begun(ctx, r)
	if r.Status != task.Running {
		return &control.Error{
			Code:    control.Conflict,
			Message: fmt.Sprintf("task %s is %s: nobody reads what is typed", r.ID, r.Status),
		}
	}
	text := req.Text
	if !req.Raw {
		text = keys(text)
	}
	if err := s.sup.Steer(ctx, r.ID, text); err != nil {
		return refusal(err)
	}
	return nil
}

// typeInto is the same for an agent. A line that the user's rules deny as a command
// is not typed either: the program behind the terminal may be a shell.
func (rt *runtime) typeInto(ctx context.Context, r task.Record, text string) (tasktools.Sent, bool, error) {
	if err := rt.s.traffic.pass(rt.id, r.ID, time.Now()); err != nil {
		return tasktools.Sent{}, true, err
	}
	if err := rt.unbanned(text); err != nil {
		return tasktools.Sent{}, true, err
	}
	if r = rt.s.begun(ctx, r); r.Status != task.Running {
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: deaf(r)}
	}
	err := rt.s.sup.Steer(ctx, r.ID, keys(text))
	var mute *shell.SteerError
	switch {
	case errors.As(err, &mute):
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: mute.Why}
	case err != nil:
		return tasktools.Sent{}, true, err
	}
	return tasktools.Sent{To: r}, true, nil
}

func (rt *runtime) unbanned(text string) error {
	rules := rt.rules
	rules.Cwd = rt.cwd
	gate, err := rt.s.gate(rules)
	if err != nil {
		return err
	}
	for _, line := range commands(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		input, err := json.Marshal(map[string]string{"command": line})
		if err != nil {
			return fmt.Errorf("permissions: %w", err)
		}
		if v := gate.Decide(agent.Call{Name: "Bash", Input: input}); v.Decision == permission.Deny && v.Rule != "" {
			return &toolkit.Refusal{
				Text: fmt.Sprintf("the rule %s denies this as a command, and so it is not typed: %s", v.Rule, v.Reason),
			}
		}
	}
	return nil
}

// commands are what a shell may make of a text that is typed: what stands between
// keys that are no letters, of which some end a line and some edit it, and all of it
// without those that edit.
func commands(text string) []string {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\t' }
	plain := strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case control(r) && r != '\n':
			return -1
		}
		return r
	}, text)
	return append(append(strings.FieldsFunc(text, control), strings.Split(plain, "\n")...), plain)
}

// deaf says to a model why work takes no message.
func deaf(r task.Record) string {
	switch {
	case r.TTY:
		return fmt.Sprintf("task %s is %s: nobody reads what is typed", r.ID, r.Status)
	case r.Traits().Work == task.ByCommand:
		return fmt.Sprintf(
			"task %s is a command without a terminal, which reads its input from /dev/null: stop it and start it with tty",
			r.ID,
		)
	}
	return fmt.Sprintf("task %s (%s) reads no messages", r.ID, r.Noun())
}
