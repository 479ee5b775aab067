package web

import (
	"encoding/json"

	"github.com/drover-dev/drover/task"
)

// choice is one answer that a question offers.
type choice struct{ Question, Label, Description string }

// choicesOf are the answers that a question of kind choice offers; those of a question with several
// parts are answered as text.
func choicesOf(q task.Question) []choice {
	if q.Kind != task.Choice || q.Hidden > 0 {
		return nil
	}
	var in struct {
		Questions []struct {
			Question string `json:"question"`
			Options  []struct {
				Label       string `json:"label"`
				Description string `json:"description"`
			} `json:"options"`
		} `json:"questions"`
	}
	if json.Unmarshal(q.Input, &in) != nil || len(in.Questions) != 1 {
		return nil
	}
	var out []choice
	for _, o := range in.Questions[0].Options {
		if o.Label != "" {
			out = append(out, choice{in.Questions[0].Question, o.Label, o.Description})
		}
	}
	return out
}
