package openai

import "github.com/drover-dev/drover/agent"

// reasoning is the parameter of that name in the Responses API.
type reasoning struct {
	Effort string `json:"effort"`
}

// effort is how both APIs are asked to think (reasoning_effort, reasoning.effort): none,
// low, medium, high or xhigh; empty: it is not said.
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
