package modelwire

import (
	"bytes"

	"github.com/drover-dev/drover/agent"
)

const (
	bytesPerToken = 3     // hardly less than a token
	imageTokens   = 1_600 // of one image, as providers count a large one
)

// estimated returns the likely usage of an answer without token counts: by the bytes that were
// sent and received. Without it such calls would escape every budget.
func estimated(req *agent.Request, reply *agent.Reply) agent.Usage {
	u := agent.Usage{Estimated: true}
	if req != nil {
		size := len(req.System)
		for _, t := range req.Tools {
			size += len(t.Name) + len(t.Description) + len(t.InputSchema)
		}
		for _, m := range req.Messages {
			raw := m.Encoded()
			size += len(raw)
			if bytes.Contains(raw, []byte(`"type":"image"`)) {
				size += imageBytes(m)
			}
		}
		u.InputTokens = int64(max(size, 0)/bytesPerToken + 1)
	}
	u.OutputTokens = int64(len(agent.NewMessage(agent.Assistant, reply.Blocks...).Encoded())/bytesPerToken + 1)
	return u
}

// imageBytes returns the difference between the weight of a message's images and their bytes; it is
// mostly below 0.
func imageBytes(m agent.Message) (more int) {
	blocks, _ := m.Blocks() // an unreadable message counts by its bytes
	for _, b := range blocks {
		if n := bytes.Count(b.Content, []byte(`"type":"image"`)); n > 0 {
			more += n*imageTokens*bytesPerToken - len(b.Content)
		}
		if b.Type == "image" {
			more += imageTokens*bytesPerToken - len(b.Source)
		}
	}
	return more
}
