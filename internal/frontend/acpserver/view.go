package acpserver

import (
	"encoding/json"
	"sync"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// view turns what agents do into updates. Its methods may be called by several goroutines.
type view struct {
	folder string
	send   func(acp.SessionUpdate)

	mu       sync.Mutex // held while updates are sent: they keep the order of events
	spoken   bool       // the last update was text of the main agent
	streamed map[int]bool
	calls    map[string]json.RawMessage // inputs of calls that were shown and have not ended, by ID
	names    map[string]string          // of their tools
	past     map[string]bool            // calls that have ended
	tasks    map[task.ID]*shownTask     // that live, or whose end is not shown
}

func newView(folder string, send func(acp.SessionUpdate)) *view {
	return &view{folder: folder, send: send, streamed: map[int]bool{}, calls: map[string]json.RawMessage{},
		names: map[string]string{}, past: map[string]bool{}, tasks: map[task.ID]*shownTask{}}
}

// begin is told that a turn of the main agent begins.
func (v *view) begin(origin string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if origin != "" && v.spoken { // what it says is no part of what was said before
		v.text("\n\n")
	}
	v.streamed = map[int]bool{}
}

// say shows text of the main agent.
func (v *view) say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.text(text)
}

func (v *view) text(text string) {
	v.send(acp.UpdateAgentMessageText(text))
	v.spoken = true
}

func (v *view) think(text string) {
	v.send(acp.UpdateAgentThoughtText(text))
	v.spoken = false
}

// main shows what the main agent does.
func (v *view) main(e agent.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e.Kind {
	case agent.PartEvent:
		v.part(e.Part)
	case agent.BlockEvent:
		if e.Block.Type == "tool_use" {
			v.call(agent.Call{ID: e.Block.ID, Name: e.Block.Name, Input: e.Block.Input})
		}
	case agent.ReplyDoneEvent:
		v.streamed = map[int]bool{}
	case agent.ToolStartEvent:
		v.calls[e.Call.ID] = e.Call.Input
		v.status(e.Call.ID, acp.ToolCallStatusInProgress, nil)
	case agent.ToolDoneEvent:
		v.done(e.Call, e.Output)
	case agent.CompactStartEvent:
		v.think("The conversation has become too long and is summed up.\n")
	case agent.CompactEvent:
		if e.Err != nil {
			v.think("The conversation could not be summed up: " + e.Err.Error() + "\n")
		}
	}
}

// part shows a piece of a reply while it comes in.
func (v *view) part(p agent.Part) {
	switch {
	case p.Kind == agent.TextPart && p.Text != "":
		v.streamed[p.Index] = true
		v.text(p.Text)
	case p.Kind == agent.ThinkingPart && p.Text != "":
		v.streamed[p.Index] = true
		v.think(p.Text)
	case p.Kind == agent.BlockPart && p.Block != nil && !v.streamed[p.Index]: // it came in one piece
		switch {
		case p.Block.Type == "text" && p.Block.Text != "":
			v.text(p.Block.Text)
		case p.Block.Type == "thinking" && p.Block.Thinking != "":
			v.think(p.Block.Thinking)
		}
	case p.Kind == agent.RetryPart:
		v.think(p.Retry.String() + "\n")
	case p.Kind == agent.FallbackPart:
		v.think(p.Fallback.String() + "\n")
	case p.Kind == agent.VoidPart:
		if len(v.streamed) > 0 {
			v.think("The answer broke off and is asked for again.\n")
		}
		v.streamed = map[int]bool{}
	}
}

// call shows a call that is not decided.
func (v *view) call(c agent.Call) {
	v.calls[c.ID], v.names[c.ID] = c.Input, c.Name
	about := describeCall(c.Name, c.Input, v.folder)
	v.spoken = false
	v.send(acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: acp.ToolCallId(c.ID), Title: about.title, Kind: about.kind, Status: acp.ToolCallStatusPending,
		Locations: about.locations, Content: about.content, RawInput: rawInput(c.Input),
	}})
}

// status shows how far a call has come, and with content what is known of it.
func (v *view) status(id string, now acp.ToolCallStatus, content []acp.ToolCallContent) {
	v.spoken = false
	v.send(acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
		ToolCallId: acp.ToolCallId(id), Status: &now, Content: content,
	}})
}

// done shows how a call has ended. One that has started work in the background goes on with
// that.
func (v *view) done(c agent.Call, out agent.Output) {
	input := c.Input
	if asked, ok := v.calls[c.ID]; ok && len(input) == 0 {
		input = asked
	}
	delete(v.calls, c.ID)
	delete(v.names, c.ID)
	status := acp.ToolCallStatusCompleted
	if out.IsError {
		status = acp.ToolCallStatusFailed
	}
	if v.living(c.ID) != nil {
		status = acp.ToolCallStatusInProgress
	} else {
		v.settled(c.ID)
	}
	v.status(c.ID, status, describeResult(c.Name, input, out, v.folder))
}

// ask shows a call about which the client is asked, and returns it as the request names it. A
// call of another agent than the main one is shown from now on.
func (v *view) ask(id, name string, input json.RawMessage) acp.ToolCallUpdate {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, shown := v.calls[id]; !shown {
		v.call(agent.Call{ID: id, Name: name, Input: input})
	}
	about := describeCall(name, input, v.folder)
	return acp.ToolCallUpdate{ToolCallId: acp.ToolCallId(id), Title: &about.title, Kind: &about.kind,
		Status: acp.Ptr(acp.ToolCallStatusPending), Locations: about.locations, Content: about.content,
		RawInput: rawInput(input)}
}

// other shows the calls of subagents as steps of their tasks, and the end of those about
// which the client was asked.
func (v *view) other(from task.ID, e agent.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Kind == agent.ToolStartEvent {
		v.step(from, e.Call)
	}
	if _, shown := v.calls[e.Call.ID]; e.Kind == agent.ToolDoneEvent && shown {
		v.done(e.Call, e.Output)
	}
}

// settle shows the end of a question that is of no call.
func (v *view) settle(id string, allowed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, shown := v.calls[id]; !shown {
		return
	}
	delete(v.calls, id)
	delete(v.names, id)
	status := acp.ToolCallStatusCompleted
	if !allowed {
		status = acp.ToolCallStatusFailed
	}
	v.status(id, status, nil)
}
