package acpserver

import (
	"encoding/json"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
)

// replay shows the conversation of a session from its transcript.
func (s *session) replay() error {
	err := s.open.History(func(r agent.Record) error {
		s.view.record(r)
		return nil
	})
	s.view.unfinished()
	return err
}

// record shows one message of a transcript.
func (v *view) record(r agent.Record) {
	if r.Aside {
		return
	}
	blocks, err := r.Message.Blocks()
	if err != nil {
		return // the next host ignores it too
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.Boundary != nil {
		v.think("The conversation was summed up.\n")
		return
	}
	if r.Message.Role() == agent.Assistant {
		v.reply(blocks)
		return
	}
	for i, b := range blocks {
		prompt := r.Prompt > 0 && i >= r.Prompt-1
		switch {
		case b.Type == "tool_result":
			if call, asked := v.calls[b.ToolUseID]; asked {
				text, images := resultOf(b.Content)
				v.done(call, agent.Output{Text: text, Images: images, IsError: b.IsError})
			}
		case r.Prompt > 0 && b.Type == "image":
			if data, kind, ok := imageOf(b.Source); ok {
				v.send(acp.UpdateUserMessage(acp.ImageBlock(data, kind)))
			}
		case prompt && b.Type == "text" && r.Typed == "":
			v.send(acp.UpdateUserMessageText(b.Text))
		}
	}
	if r.Typed != "" {
		v.send(acp.UpdateUserMessageText(r.Typed))
	}
	v.spoken = false
}

// reply shows a whole reply.
func (v *view) reply(blocks []agent.Block) {
	if v.spoken { // in another turn
		v.text("\n\n")
	}
	for _, b := range blocks {
		switch {
		case b.Type == "text" && b.Text != "":
			v.text(b.Text)
		case b.Type == "thinking" && b.Thinking != "":
			v.think(b.Thinking)
		case b.Type == "tool_use":
			v.call(agent.Call{ID: b.ID, Name: b.Name, Input: b.Input})
		}
	}
}

// unfinished shows calls without a result as failed: they no longer run.
func (v *view) unfinished() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.calls {
		v.status(id, acp.ToolCallStatusFailed, text("The session ended before the call did."))
	}
	clear(v.calls)
	v.spoken = false
}

// resultOf returns the text and the images of the result of a call.
func resultOf(raw json.RawMessage) (text string, images []agent.Block) {
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var blocks []agent.Block
	_ = json.Unmarshal(raw, &blocks) // any other value has no blocks
	for _, b := range blocks {
		if b.Type == "image" {
			images = append(images, b)
		}
		text += b.Text
	}
	return text, images
}
