package usertools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// Bounds of a call and of its answer.
const (
	maxText   = 2000   // code points of a question or description
	maxLabel  = 80     // code points of a label or header
	maxAnswer = 20_000 // code points
)

//go:embed ask.md
var askPrompt string

// Ask puts a question to somebody and waits for the answer. The question has
// the kind [task.Choice] and the input of the call; the choice comes back as
// the text of the reply. Only a reply that allows is an answer.
type Ask func(context.Context, task.Question) (task.Reply, error)

// askInput is the questions of a call.
type askInput struct {
	Questions []question `json:"questions" jsonschema:"What to ask" input:"minItems=1,maxItems=4"`
}

type question struct {
	Question    string   `json:"question" jsonschema:"The whole question" input:"filled"`
	Header      string   `json:"header" jsonschema:"A label of a word or two" input:"filled"`
	Options     []option `json:"options" input:"minItems=2,maxItems=4"`
	MultiSelect bool     `json:"multiSelect,omitempty" jsonschema:"Several options may be chosen" input:"default=false"`
}

type option struct {
	Label       string `json:"label" jsonschema:"What the user chooses, in one to five words" input:"filled"`
	Description string `json:"description" jsonschema:"What it means, and what follows from it"`
}

// NewAsk makes the tool AskUserQuestion. With nil questions stay unanswered.
func NewAsk(ask Ask) agent.Tool {
	return toolkit.New(toolkit.Tool[askInput]{
		Name: "AskUserQuestion", Description: askPrompt,
		ReadOnly: true, // it is called without a question about the question
		Call:     ask.call,
	})
}

func (ask Ask) call(ctx context.Context, c agent.Call, in askInput) (agent.Output, error) {
	if err := in.check(); err != nil {
		return agent.Output{}, err
	}
	if ask == nil {
		return nobody("nobody is there to answer")
	}
	reply, err := ask(ctx, task.Question{
		Kind: task.Choice, Tool: "AskUserQuestion", ToolUseID: c.ID, Input: c.Input,
		Reason: excerpt.Line(in.Questions[0].Question, 200),
	})
	switch {
	case ctx.Err() != nil:
		return agent.Output{}, context.Cause(ctx)
	case err != nil:
		return agent.Output{}, fmt.Errorf("ask the user: %w", err)
	case !reply.Allow && reply.Reason != "":
		return nobody(excerpt.Line(reply.Reason, 500))
	case !reply.Allow || strings.TrimSpace(reply.Text) == "":
		return nobody("there was no answer")
	}
	text := excerpt.Plain(reply.Text)
	if r := []rune(text); len(r) > maxAnswer {
		text = fmt.Sprintf("%s… (%d more characters)", string(r[:maxAnswer]), len(r)-maxAnswer)
	}
	return agent.Output{Text: "The user answered:\n" + text}, nil
}

func nobody(why string) (agent.Output, error) {
	return agent.Output{}, toolkit.Refusef("%s. Decide by yourself what is most sensible, go on, "+
		"and say in your answer what you decided and why.", why)
}

// check refuses options that cannot be told apart, and texts that are too long.
func (in askInput) check() error {
	for i, q := range in.Questions {
		one := fmt.Sprintf("question %d", i+1)
		seen := map[string]bool{}
		for i, o := range q.Options {
			this := fmt.Sprintf("%s: option %d", one, i+1)
			if seen[o.Label] {
				return toolkit.Refusef("%s: its label is that of another", this)
			}
			seen[o.Label] = true
			if err := short(this, "label", o.Label, maxLabel); err != nil {
				return err
			}
			if err := short(this, "description", o.Description, maxText); err != nil {
				return err
			}
		}
		if err := short(one, "header", q.Header, maxLabel); err != nil {
			return err
		}
		if err := short(one, "question", q.Question, maxText); err != nil {
			return err
		}
	}
	return nil
}

func short(where, field, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return toolkit.Refusef("%s: field %q has %d characters, more than %d", where, field, n, most)
	}
	return nil
}
