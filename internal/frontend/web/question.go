package web

import (
	"encoding/json"

	"github.com/drover-dev/drover/task"
)

// choicesOf are the answers that a question of kind choice offers. Questions with several parts are answered as text.
func choicesOf(q task.Question) (out []task.ChoiceOption) {
	var in task.ChoiceInput
	if q.Kind != task.Choice || q.Hidden > 0 || json.Unmarshal(q.Input, &in) != nil || len(in.Questions) != 1 {
		return nil
	}
	for _, o := range in.Questions[0].Options {
		if o.Label != "" {
			out = append(out, o)
		}
	}
	return out
}
