package subagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// Hooks are functions of the program that take part in the life of agents. They
// are called by several goroutines, and must return when ctx ends. For each
// start one stop is told that cannot be, or was not, vetoed.
type Hooks interface {
	// SubagentStart is told before the first turn of a run. Its text, if any, is
	// read by the agent before its prompt.
	SubagentStart(ctx context.Context, a HookAgent) (more string)
	// SubagentStop is told when the agent is about to end. A reason makes the
	// agent go on with that reason as its next prompt, unless end.Err is set, or
	// it has been sent on eight times in a row; an empty one lets it end.
	SubagentStop(ctx context.Context, a HookAgent, end HookEnd) (reason string)
}

// HookAgent is the agent that [Hooks] are told of.
type HookAgent struct {
	ID         task.ID
	Type       string
	Transcript string // absolute path
}

// HookEnd is how an agent is about to end.
type HookEnd struct {
	Answer string // the last thing that it said
	Again  bool   // a hook has sent it on before
	Err    string // it was stopped or has failed, and cannot be sent on; empty: it ends by itself
}

// ErrClosed is a start in a session, or below an agent, that ends.
var ErrClosed = errors.New("no further agent is started")

// LimitError is a start that a limit forbids.
type LimitError struct {
	// depth, per_root, per_session, rate, queue for agents at work and waiting, max_budget_usd, or max_budget_tokens
	Limit string
	N     int
	Wait  time.Duration // of rate: until the next may be started
	Err   error         // with the text
}

func (e *LimitError) Error() string { return e.Err.Error() }
func (e *LimitError) Unwrap() error { return e.Err }

// With returns the catalog with further definitions, which go before those of
// the same name. It refuses what cannot work.
func (c Catalog) With(defs ...Definition) (Catalog, error) {
	var errs []error
	seen := map[string]bool{}
	for _, d := range defs {
		switch {
		case Normalize(d.Name) == "":
			errs = append(errs, errors.New("an agent definition has no name"))
		case strings.TrimSpace(d.Prompt) == "":
			errs = append(errs, fmt.Errorf("agent definition %s: the prompt is empty", d.Name))
		case seen[Normalize(d.Name)]:
			errs = append(errs, fmt.Errorf("agent definition %s: there are two of this name", d.Name))
		}
		seen[Normalize(d.Name)] = true
	}
	if len(errs) > 0 {
		return c, errors.Join(errs...)
	}
	return NewCatalog(slices.Concat(c.All(), defs)...), nil
}

// callerKey is the key of a context that an agent runs under.
type callerKey struct{}

// within marks all that an agent does as its doing.
func within(ctx context.Context, h task.Host) context.Context {
	return context.WithValue(ctx, callerKey{}, h)
}

// Caller is the agent whose tool was called with ctx, or a context made from it; nil: none.
func Caller(ctx context.Context) task.Host {
	h, _ := ctx.Value(callerKey{}).(task.Host)
	return h
}
