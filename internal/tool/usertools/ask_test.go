package usertools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

const good = `{"questions":[{"question":"Which database?","header":"Database","options":[{"label":"SQLite","description":"one file"},{"label":"Postgres","description":"a server"}],"multiSelect":false}]}`

func TestAsk(t *testing.T) {
	var asked task.Question
	for _, c := range []struct {
		name  string
		reply task.Reply
		want  string
		fails bool
	}{
		{"answer", task.Reply{Allow: true, Text: "Database: SQLite\x1b[2J"}, "The user answered:\nDatabase: SQLite", false},
		{"long", task.Reply{Allow: true, Text: strings.Repeat("ä", maxAnswer+3)},
			"The user answered:\n" + strings.Repeat("ä", maxAnswer) + "… (3 more characters)", false},
		{"denied", task.Reply{Reason: "nobody answered in 10m"},
			"AskUserQuestion: nobody answered in 10m. Decide by yourself", true},
		{"silent", task.Reply{}, "AskUserQuestion: there was no answer. Decide by yourself", true},
		{"empty", task.Reply{Allow: true, Text: " "}, "there was no answer", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool := NewAsk(func(_ context.Context, q task.Question) (task.Reply, error) { asked = q; return c.reply, nil })
			out, err := tool.Call(t.Context(), agent.Call{Input: json.RawMessage(good)})
			if err != nil || out.IsError != c.fails || !strings.Contains(out.Text, c.want) || !c.fails && out.Text != c.want {
				t.Errorf("%.300q, %v, %v", out.Text, out.IsError, err)
			}
		})
	}
	if asked.Kind != task.Choice || asked.Tool != "AskUserQuestion" || string(asked.Input) != good ||
		asked.Reason != "Which database?" {
		t.Errorf("asked %+v", asked)
	}
}

func TestNobody(t *testing.T) {
	out, err := NewAsk(nil).Call(t.Context(), agent.Call{Input: json.RawMessage(good)})
	if err != nil || !out.IsError || !strings.Contains(out.Text, "nobody is there to answer. Decide by yourself") ||
		!strings.Contains(out.Text, "say in your answer what you decided") {
		t.Errorf("%q, %v", out.Text, err)
	}
	broken := errors.New("no log")
	if _, err := NewAsk(func(context.Context, task.Question) (task.Reply, error) {
		return task.Reply{},
			broken
	}).Call(t.Context(), agent.Call{Input: json.RawMessage(good)}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("turn interrupted")
	ask := func(ctx context.Context, _ task.Question) (task.Reply, error) {
		cancel(gone)
		return task.Reply{Allow: true, Text: "late"}, nil
	}
	if _, err := NewAsk(ask).Call(ctx, agent.Call{Input: json.RawMessage(good)}); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}

func TestAskStrict(t *testing.T) {
	option := `{"label":"a","description":"x"},{"label":"b","description":""}`
	ask := func(context.Context, task.Question) (task.Reply, error) {
		t.Error("a question that is wrong was asked")
		return task.Reply{}, nil
	}
	one := func(options string) string {
		return `{"questions":[{"question":"q","header":"h","options":[` + options + `]}]}`
	}
	for input, want := range map[string]string{
		`{}`:               `field "questions" is missing`,
		`{"questions":[]}`: `field "questions" must have 1 to 4 items, not 0`,
		`{"questions":[` + strings.TrimSuffix(strings.Repeat("{},", 5), ",") + `]}`: `1 to 4 items, not 5`,
		`{"questions":["x"]}`:                           `question 1: the input is not a JSON object`,
		`{"questions":[{"question":"q","header":"h"}]}`: `question 1: field "options" is missing`,
		`{"questions":[{"question":" ","header":"h","options":[` + option +
			`]}]}`: `question 1: field "question" is empty`,
		`{"questions":[{"question":"q","header":"h","options":[` + option +
			`],"more":1}]}`: `question 1: unknown field "more"`,
		`{"questions":[{"question":"q","header":"h","options":[` + option +
			`],"multiSelect":"yes"}]}`: `must be true or false`,
		one(`{"label":"a","description":"x"}`): `2 to 4 items, not 1`,
		one(`{"label":"a","description":"x"},{"label":"a","description":"y"}`): `question 1: option 2: its label is that ` +
			`of another`,
		one(`{"label":"a"},{"label":"b","description":"y"}`): `option 1: field "description" is missing`,
		one(fmt.Sprintf(`{"label":%q,"description":"x"},{"label":"b","description":""}`,
			strings.Repeat("l", 81))): `field "label" has 81 characters`,
		fmt.Sprintf(`{"questions":[{"question":%q,"header":"h","options":[%s]}]}`, strings.Repeat("q", 2001),
			option): `field "question" has 2001 characters`,
	} {
		out, err := NewAsk(ask).Call(t.Context(), agent.Call{Input: json.RawMessage(input)})
		if err != nil || !out.IsError || !strings.Contains(out.Text, want) {
			t.Errorf("%.100s: %q, %v", input, out.Text, err)
		}
	}
	out, _ := NewAsk(nil).Call(t.Context(), agent.Call{Input: json.RawMessage(one(option))})
	if !strings.Contains(out.Text, "nobody is there") {
		t.Errorf("the least that is allowed: %q", out.Text)
	}
}

// Every object of the schema is closed.
func TestAskSpec(t *testing.T) {
	s := string(NewAsk(nil).Spec().InputSchema)
	if !json.Valid([]byte(s)) || strings.Count(s, `"type":"object"`) != 3 ||
		strings.Count(s, `"additionalProperties":false`) != 3 {
		t.Errorf("schema %s", s)
	}
}
