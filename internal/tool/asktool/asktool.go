// Package asktool is the tool AskUserQuestion, by which a model lets the user
// choose.
//
// It promises that a question is well formed before anybody sees it, and that
// a model whose question nobody answers is told to decide by itself. It does
// not know who answers, and how long that may take: that is the function it is
// given.
package asktool

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
	"github.com/drover-dev/drover/task"
)

// Bounds of a call and of its answer.
const (
	maxQuestions = 4
	minOptions   = 2
	maxOptions   = 4
	maxText      = 2000   // code points of a question or description
	maxLabel     = 80     // code points of a label or header
	maxAnswer    = 20_000 // code points
)

//go:embed ask.md
var prompt string

const schema = `{"type":"object","properties":{"questions":{"type":"array","minItems":1,"maxItems":4,"description":"What to ask","items":{"type":"object","properties":{` +
	`"question":{"type":"string","description":"The whole question"},` +
	`"header":{"type":"string","description":"A label of a word or two"},` +
	`"options":{"type":"array","minItems":2,"maxItems":4,"items":{"type":"object","properties":{` +
	`"label":{"type":"string","description":"What the user chooses, in one to five words"},` +
	`"description":{"type":"string","description":"What it means, and what follows from it"}` +
	`},"required":["label","description"],"additionalProperties":false}},` +
	`"multiSelect":{"type":"boolean","default":false,"description":"Several options may be chosen"}` +
	`},"required":["question","header","options"],"additionalProperties":false}}},"required":["questions"],"additionalProperties":false}`

// Ask puts a question to somebody and waits for the answer. The question has
// the kind [task.Choice] and the input of the call; the choice comes back as
// the text of the reply. A reply that does not allow is no answer.
type Ask func(context.Context, task.Question) (task.Reply, error)

// New makes the tool AskUserQuestion. With nil nobody is there to answer.
func New(ask Ask) agent.Tool {
	return &tool{ask: ask, spec: agent.ToolSpec{Name: "AskUserQuestion", Description: prompt, InputSchema: json.RawMessage(schema)}}
}

// Question is one question of a call, as clients read it in the input.
type Question struct {
	Question    string   `json:"question" strict:"filled"`
	Header      string   `json:"header" strict:"filled"`
	Options     []Option `json:"options" strict:"required"`
	MultiSelect bool     `json:"multiSelect"`
}

// Option is one answer to choose.
type Option struct {
	Label       string `json:"label" strict:"filled"`
	Description string `json:"description" strict:"required"`
}

type tool struct {
	ask  Ask
	spec agent.ToolSpec
}

func (t *tool) Spec() agent.ToolSpec { return t.spec }

// ReadOnly lets it be called without a question about the question.
func (t *tool) ReadOnly() bool { return true }

func (t *tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	questions, err := decode(c.Input)
	if err != nil {
		return agent.Refuse("AskUserQuestion: " + err.Error()), nil
	}
	if t.ask == nil {
		return nobody("nobody is there to answer"), nil
	}
	reply, err := t.ask(ctx, task.Question{Kind: task.Choice, Tool: "AskUserQuestion", Input: c.Input, Reason: excerpt.Line(questions[0].Question, 200)})
	switch {
	case ctx.Err() != nil:
		return agent.Output{}, context.Cause(ctx)
	case err != nil:
		return agent.Output{}, fmt.Errorf("ask the user: %w", err)
	case !reply.Allow && reply.Reason != "":
		return nobody(excerpt.Line(reply.Reason, 500)), nil
	case !reply.Allow || strings.TrimSpace(reply.Text) == "":
		return nobody("there was no answer"), nil
	}
	text := excerpt.Plain(reply.Text)
	if r := []rune(text); len(r) > maxAnswer {
		text = fmt.Sprintf("%s… (%d more characters)", string(r[:maxAnswer]), len(r)-maxAnswer)
	}
	return agent.Output{Text: "The user answered:\n" + text}, nil
}

func nobody(why string) agent.Output {
	return agent.Refuse("AskUserQuestion: " + why + ". Decide by yourself what is most sensible, go on, and say in your answer what you decided and why.")
}

// decode reads the questions, each as strictly as the input of a tool.
func decode(raw json.RawMessage) ([]Question, error) {
	in, err := strict.Decode[struct {
		Questions []json.RawMessage `json:"questions" strict:"required"`
	}](raw)
	if err != nil {
		return nil, err
	}
	if n := len(in.Questions); n < 1 || n > maxQuestions {
		return nil, fmt.Errorf(`field "questions" must have 1 to %d items, not %d`, maxQuestions, n)
	}
	out := make([]Question, len(in.Questions))
	for i, q := range in.Questions {
		if out[i], err = question(q); err != nil {
			return nil, fmt.Errorf("question %d: %w", i+1, err)
		}
	}
	return out, nil
}

func question(raw json.RawMessage) (Question, error) {
	in, err := strict.Decode[struct {
		Question    string            `json:"question" strict:"filled"`
		Header      string            `json:"header" strict:"filled"`
		Options     []json.RawMessage `json:"options" strict:"required"`
		MultiSelect bool              `json:"multiSelect"`
	}](raw)
	if err != nil {
		return Question{}, err
	}
	q := Question{Question: in.Question, Header: in.Header, MultiSelect: in.MultiSelect}
	if n := len(in.Options); n < minOptions || n > maxOptions {
		return q, fmt.Errorf(`field "options" must have %d to %d items, not %d`, minOptions, maxOptions, n)
	}
	seen := map[string]bool{}
	for i, raw := range in.Options {
		o, err := strict.Decode[Option](raw)
		if err == nil && seen[o.Label] {
			err = errors.New("its label is that of another")
		}
		if err == nil {
			err = short("label", o.Label, maxLabel)
		}
		if err == nil {
			err = short("description", o.Description, maxText)
		}
		if err != nil {
			return q, fmt.Errorf("option %d: %w", i+1, err)
		}
		seen[o.Label] = true
		q.Options = append(q.Options, o)
	}
	return q, cmp.Or(short("header", q.Header, maxLabel), short("question", q.Question, maxText))
}

func short(field, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Errorf("field %q has %d characters, more than %d", field, n, most)
	}
	return nil
}
