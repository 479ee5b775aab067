package acpserver

import (
	"cmp"
	"sync"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// view turns what agents do into updates. Its methods may be called by several goroutines.
type view struct {
	folder string
	send   func(acp.SessionUpdate)

	mu       sync.Mutex // held while updates are sent, so that they keep the order of events
	spoken   bool       // the last update was text of the main agent
	streamed map[int]bool
	calls    map[string]agent.Call  // shown and not ended, by ID
	past     map[string]bool        // calls that have ended
	tasks    map[task.ID]*shownTask // live, or ended without being shown so
}

func newView(folder string, send func(acp.SessionUpdate)) *view {
	return &view{folder: folder, send: send, streamed: map[int]bool{}, calls: map[string]agent.Call{},
		past: map[string]bool{}, tasks: map[task.ID]*shownTask{}}
}

// begin begins a turn of the main agent.
func (v *view) begin(origin string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if origin != "" && v.spoken { // separates the answers of two turns
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

// main shows an event of the agent whose view it is.
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
		v.calls[e.Call.ID] = e.Call
		v.status(e.Call.ID, acp.ToolCallStatusInProgress, nil)
	case agent.ToolDoneEvent:
		v.done(e.Call, e.Output)
	case agent.CompactStartEvent:
		v.think("The conversation is too long. Summarizing it.\n")
	case agent.CompactEvent:
		if e.Err != nil {
			v.think("Summarizing the conversation failed: " + e.Err.Error() + "\n")
		}
	}
}

// part shows a piece of a reply while it streams.
func (v *view) part(p agent.Part) {
	switch {
	case p.Kind == agent.TextPart && p.Text != "":
		v.streamed[p.Index] = true
		v.text(p.Text)
	case p.Kind == agent.ThinkingPart && p.Text != "":
		v.streamed[p.Index] = true
		v.think(p.Text)
	case p.Kind == agent.BlockPart && p.Block != nil && !v.streamed[p.Index]: // not streamed
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
			v.think("The answer broke off. Asking again.\n")
		}
		v.streamed = map[int]bool{}
	}
}

// call shows a call before it runs.
func (v *view) call(c agent.Call) {
	v.calls[c.ID] = c
	about := describeCall(c, v.folder)
	v.spoken = false
	v.send(acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: acp.ToolCallId(c.ID), Title: about.title, Kind: about.kind, Status: acp.ToolCallStatusPending,
		Locations: about.locations, Content: about.content, RawInput: rawInput(c.Input),
	}})
}

// status shows the status of a call, and its content unless that is nil.
func (v *view) status(id string, now acp.ToolCallStatus, content []acp.ToolCallContent) {
	v.spoken = false
	v.send(acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
		ToolCallId: acp.ToolCallId(id), Status: &now, Content: content,
	}})
}

// done shows the result of a call. A call that has started work in the background stays in progress.
func (v *view) done(c agent.Call, out agent.Output) {
	if asked, ok := v.calls[c.ID]; ok && len(c.Input) == 0 {
		c.Input = asked.Input
	}
	delete(v.calls, c.ID)
	status := acp.ToolCallStatusCompleted
	if out.IsError {
		status = acp.ToolCallStatusFailed
	}
	if v.living(c.ID) {
		status = acp.ToolCallStatusInProgress
	} else {
		v.settled(c.ID)
	}
	v.status(c.ID, status, describeResult(c, out, v.folder))
}

// ask shows the call of a question, unless it is shown already, and returns it for the request.
func (v *view) ask(q task.Question) acp.ToolCallUpdate {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := agent.Call{ID: cmp.Or(q.ToolUseID, q.ID), Name: q.Tool, Input: q.Input}
	if _, shown := v.calls[c.ID]; !shown {
		v.call(c)
	}
	about := describeCall(c, v.folder)
	return acp.ToolCallUpdate{ToolCallId: acp.ToolCallId(c.ID), Title: &about.title, Kind: &about.kind,
		Status: acp.Ptr(acp.ToolCallStatusPending), Locations: about.locations, Content: about.content,
		RawInput: rawInput(c.Input)}
}

// other shows the calls of a subagent as steps of its task, and the end of a call that the client was asked
// about.
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

// settle shows the end of a question without a call.
func (v *view) settle(id string, allowed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, shown := v.calls[id]; !shown {
		return
	}
	delete(v.calls, id)
	status := acp.ToolCallStatusCompleted
	if !allowed {
		status = acp.ToolCallStatusFailed
	}
	v.status(id, status, nil)
}
