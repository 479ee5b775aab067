package openai

import (
	"bytes"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

func TestEffortOnTheWire(t *testing.T) {
	for _, c := range []struct {
		ask  agent.Thinking
		want string // empty: nothing is said
	}{
		{agent.Thinking{}, ""},
		{agent.Thinking{Effort: "high"}, "high"},
		{agent.Thinking{Effort: "max"}, "xhigh"},
		{agent.Thinking{Tokens: 4000}, "low"},
		{agent.Thinking{Tokens: -1}, "none"},
	} {
		for _, api := range []API{Chat, Responses} {
			s := answers(t, modeltest.Text("ok"))
			m := connect(t, modelwire.Account{BaseURL: s.URL, APIKey: "k"}, api)
			req := talk()
			req.Thinking = c.ask
			if _, err := m.Reply(waittest.Context(t, patience), req, nil); err != nil {
				t.Fatal(err)
			}
			body := s.Requests()[0].Body
			want := `"reasoning_effort":"` + c.want + `"`
			if api == Responses {
				want = `"reasoning":{"effort":"` + c.want + `"}`
			}
			if got := bytes.Contains(body, []byte(want)); got != (c.want != "") {
				t.Errorf("%+v over %v: %s", c.ask, api, body)
			}
			if c.want == "" && bytes.Contains(body, []byte("reasoning")) {
				t.Errorf("it says something: %s", body)
			}
		}
	}
}
