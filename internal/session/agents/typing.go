package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// typeInto types for an agent. A line that the user's rules deny as a command is not typed
// either, since the program in the terminal may be a shell.
func (rt *Runtime) typeInto(ctx context.Context, r task.Record, text string) (tasktools.Sent, bool, error) {
	if err := rt.s.mail.AllowInput(rt.ID, r.ID); err != nil {
		return tasktools.Sent{}, true, err
	}
	if err := rt.unbanned(text); err != nil {
		return tasktools.Sent{}, true, err
	}
	if r = rt.s.Begun(ctx, r); r.Status != task.Running {
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: deaf(r)}
	}
	err := rt.s.Tasks.Steer(ctx, r.ID, tasks.Keys(text))
	var mute *task.SteerError
	switch {
	case errors.As(err, &mute):
		return tasktools.Sent{}, true, &toolkit.Refusal{Text: mute.Why}
	case err != nil:
		return tasktools.Sent{}, true, err
	}
	return tasktools.Sent{To: r}, true, nil
}

func (rt *Runtime) unbanned(text string) error {
	rules := rt.Rules
	rules.Cwd = rt.Cwd
	gate, err := rt.s.gates.New(rules)
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
		if v := gate.Decide(agent.Call{Name: "Bash", Input: input}); v.Decision == policy.Deny && v.Rule != "" {
			return &toolkit.Refusal{
				Text: fmt.Sprintf("the rule %s denies this as a command, and so it is not typed: %s", v.Rule, v.Reason),
			}
		}
	}
	return nil
}

// commands returns the lines that a shell may read in typed text: the parts between keys that are not
// characters, some of which end or edit a line, and the whole text without editing keys.
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

// deaf tells a model why a task accepts no message.
func deaf(r task.Record) string {
	switch {
	case r.TTY:
		return fmt.Sprintf("task %s is %s: nobody reads what is typed", r.ID, r.Status)
	case r.Traits().Work == task.ByCommand:
		return fmt.Sprintf(
			"task %s is a command without a terminal, which reads its input from /dev/null: stop it and start it with tty", r.ID,
		)
	}
	return fmt.Sprintf("task %s (%s) reads no messages", r.ID, r.Noun())
}
