package openai

import "github.com/drover-dev/drover/agent"

// reasoning is the parameter of that name in the Responses API.
type reasoning struct {
	Effort string `json:"effort"`
}

// effort returns the reasoning effort for both APIs (reasoning_effort, reasoning.effort): none,
// low, medium, high or xhigh; empty: it is not sent.
func effort(t agent.Thinking) string {
	switch e := t.Nearest(); {
	case t.Tokens < 0:
		return "none"
	case e == "max":
		return "xhigh"
	default:
		return e
	}
}
