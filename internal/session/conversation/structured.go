package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/usertools"
)

// maxStructured is how often the agent may fail, in one turn, to answer with a value.
const maxStructured = 5

// Structured makes an agent answer each turn with a value of a JSON schema. A nil Structured
// does nothing.
type Structured struct {
	schema *usertools.Schema
	hooks  agent.Hooks // of the agent; set once, before the first turn

	mu    sync.Mutex // guards the fields below, of one turn
	tries int        // failed attempts
	why   string     // the last attempt failed
	value json.RawMessage
}

// NewStructured returns a Structured for a schema.
func NewStructured(s *usertools.Schema) *Structured { return &Structured{schema: s} }

// Tool returns the tool with which the agent answers.
func (s *Structured) Tool() agent.Tool { return usertools.NewStructured(s.schema, s.take) }

// Hooks takes part in the ends of the agent's turns, before its own hooks.
func (s *Structured) Hooks(own agent.Hooks) agent.Hooks {
	if s == nil {
		return own
	}
	s.hooks = own
	return structuredHooks{own, s}
}

// begin starts a turn.
func (s *Structured) begin() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries, s.why, s.value = 0, "", nil
}

// failed counts an attempt, and reports whether it was the last one.
func (s *Structured) failed(why string) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	s.why = why
	return s.tries >= maxStructured
}

// take decides about a call of the tool.
func (s *Structured) take(ctx context.Context, c agent.Call) agent.Output {
	if err := s.schema.Check(c.Input); err != nil {
		why := excerpt.Line(err.Error(), 1000)
		if s.failed(why) {
			return agent.Output{IsError: true, EndTurn: true, Text: fmt.Sprintf("The value does not fit the schema: %s. "+
				"It was the last of %d tries.", why, maxStructured)}
		}
		return agent.Refuse(fmt.Sprintf("The value does not fit the schema: %s. Correct it and call %s again.", why,
			usertools.StructuredName))
	}
	var value bytes.Buffer
	if err := json.Compact(&value, c.Input); err != nil {
		return agent.Refuse("The value is not valid JSON: " + err.Error())
	}
	s.mu.Lock()
	blocked := s.tries
	s.mu.Unlock()
	if s.hooks != nil {
		res := agent.TurnResult{Text: value.String(), Reason: "tool_end"}
		if reason := s.hooks.Stop(ctx, res, blocked); reason != "" && !s.failed(reason) {
			return agent.Refuse("The answer does not count yet: " + reason)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value.Bytes()
	return agent.Output{Text: "The answer was accepted.", EndTurn: true}
}

// ended adds the value to the result of a turn, or the error that it is missing.
func (s *Structured) ended(res agent.TurnResult, err error) (agent.TurnResult, error) {
	if s == nil {
		return res, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.value != nil && err == nil:
		res.Text, res.Structured = string(s.value), s.value
	case err == nil && s.tries >= maxStructured:
		limit := &agent.LimitError{Limit: agent.StructuredLimit, N: maxStructured, Text: fmt.Sprintf(
			"the model gave no answer that fits the JSON schema in %d tries: %s", maxStructured, s.why)}
		res.Reason, err = limit.Limit, limit
	}
	return res, err
}

// structuredHooks are the hooks of an agent that has to answer with a value.
type structuredHooks struct {
	agent.Hooks
	s *Structured
}

// Stop continues the turn while the agent has answered only in text.
func (h structuredHooks) Stop(context.Context, agent.TurnResult, int) (reason string) {
	if h.s.failed("it did not call " + usertools.StructuredName) {
		return ""
	}
	return fmt.Sprintf("<system-reminder>\nAn answer in words does not count: give it by calling %s.\n</system-reminder>",
		usertools.StructuredName)
}
