package session

import (
	"fmt"
	"slices"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// hops knows how long the chain of messages is that an agent would go on with: by
// how many messages in a row agents have answered each other with nothing done in
// between. A prompt, a message of somebody who is no agent, the end of a task and
// the result of a tool end the chain. Its zero value is ready.
type hops struct {
	mu    sync.Mutex
	heard map[task.ID]int // of the chain that an agent has read last
}

// next is the length of the chain with one more message of an agent, or the
// refusal of one that would be too long.
func (h *hops) next(id task.ID, most int) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.heard[id] + 1; n <= most {
		return n, nil
	}
	return 0, &toolkit.Refusal{
		Text: fmt.Sprintf(
			"agents have answered each other by %d messages in a row with nothing done in between, which is all that they may: "+
				"do some of the work, or end with a report",
			most,
		),
	}
}

// answer is the length of the chain with what an agent says to its owner by ending
// or resting; 0 if that answers no message.
func (h *hops) answer(id task.ID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.heard[id]; n > 0 {
		return n + 1
	}
	return 0
}

// hear says that an agent has read a message of a chain.
func (h *hops) hear(id task.ID, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heard == nil {
		h.heard = map[task.ID]int{}
	}
	h.heard[id] = n
}

// worked ends the chain for an agent.
func (h *hops) worked(id task.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.heard, id)
}

// on ends the chain when a tool has done something.
func (h *hops) on(id task.ID, e agent.Event) {
	if e.Kind == agent.ToolDoneEvent && !e.Output.IsError && !slices.Contains(chatter(), e.Call.Name) {
		h.worked(id)
	}
}

// chatter is the tools by which nothing gets done.
func chatter() []string {
	return []string{
		"SendMessage",
		"write_agent",
		"read_agent",
		"ListTasks",
		"TaskOutput",
		"report_intent",
		"TaskGet",
		"TaskList",
	}
}

// read takes in what an agent reads of its mail. What is no agent's message ends
// the chain, whatever else comes with it.
func (h *hops) read(owner task.ID, mail []mailbox.Mail, seqs []task.Seq) {
	longest := 0
	for _, m := range mail {
		if !slices.Contains(seqs, m.Seq) {
			continue
		}
		n := h.answer(m.Notice.Task)
		if m.Message != nil {
			n = m.Message.Hops
		}
		if n == 0 {
			h.worked(owner)
			return
		}
		longest = max(longest, n)
	}
	if longest > 0 {
		h.hear(owner, longest)
	}
}
