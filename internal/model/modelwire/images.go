package modelwire

import (
	"encoding/json"
	"fmt"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/internal/platform/picture"
)

// Fitting returns blocks whose images are within the limits of a provider: scaled down, or
// replaced by a text that says why they are missing. changed is false if all images fit.
func Fitting(blocks []agent.Block, of modelinfo.ImageLimits) (fit []agent.Block, changed bool) {
	for _, b := range blocks {
		var inner []agent.Block
		switch {
		case b.Type == "image":
			if fitting := fitImage(b, of); fitting != nil {
				b, changed = *fitting, true
			}
		case b.Type == "tool_result" && json.Unmarshal(b.Content, &inner) == nil:
			if inner, again := Fitting(inner, of); again {
				if raw, err := jsonc.Encode(inner); err == nil {
					b.Content, changed = raw, true
				}
			}
		}
		fit = append(fit, b)
	}
	return fit, changed
}

// fitImage returns nil for an image that is sent unchanged, also for an image at an address.
func fitImage(b agent.Block, of modelinfo.ImageLimits) *agent.Block {
	data, kind, err := picture.Content(b.Source)
	if err != nil || len(data) == 0 {
		return nil
	}
	fit, as, err := picture.Fit(data, kind, of.Side, of.Base64)
	switch {
	case err != nil:
		b = agent.TextBlock(fmt.Sprintf("[image left out: %v]", err))
	case len(fit) == len(data) && as == kind:
		return nil
	default:
		b.Source = picture.Source(fit, as)
	}
	return &b
}
