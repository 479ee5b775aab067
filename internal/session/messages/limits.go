package messages

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// Allow counts a message from one agent to another and returns the resulting length of the
// chain, or an error if a limit is exceeded.
func (m *Mailboxes) Allow(from, to task.ID) (hops int, err error) {
	if hops, err = m.chains.next(from, m.s.Options.Limits.MessageHops); err != nil {
		return 0, err
	}
	return hops, m.AllowInput(from, to)
}

// AllowInput is Allow for a message to a task that is not an agent, and does not answer.
func (m *Mailboxes) AllowInput(from, to task.ID) error { return m.rates.pass(from, to, time.Now()) }

// Hops returns the length of the chain with the message that an agent sends to its owner when
// it ends or becomes idle; 0 if that answers no message.
func (m *Mailboxes) Hops(id task.ID) int { return m.chains.answer(id) }

// Continue records that an agent continues with a message of a chain.
func (m *Mailboxes) Continue(id task.ID, hops int) { m.chains.hear(id, hops) }

// Worked ends the chain of an agent.
func (m *Mailboxes) Worked(id task.ID) { m.chains.worked(id) }

// On ends the chain of an agent when a tool had an effect.
func (m *Mailboxes) On(id task.ID, e agent.Event) { m.chains.on(id, e) }

// Limits of messages between agents. Two that answer each other forever cost money without a
// result.
const (
	pairMessages    = 30
	pairWindow      = 10 * time.Minute
	sessionMessages = 1000
)

// rates counts the messages of agents. Its zero value is ready.
type rates struct {
	mu    sync.Mutex
	total int                        // guarded by mu, like the next
	sent  map[[2]task.ID][]time.Time // by sender and receiver, within the window
}

// pass counts a message, or returns an error if a limit is exceeded.
func (r *rates) pass(from, to task.ID, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pair := [2]task.ID{from, to}
	recent := slices.DeleteFunc(r.sent[pair], func(at time.Time) bool { return now.Sub(at) >= pairWindow })
	switch {
	case r.total >= sessionMessages:
		return &toolkit.Refusal{
			Text: fmt.Sprintf("the agents of this session have sent %d messages, which is all that they may: go on without",
				sessionMessages),
		}
	case len(recent) >= pairMessages:
		return &toolkit.Refusal{
			Text: fmt.Sprintf("you have sent %d messages to this agent within %s, which is all that you may: "+
				"do the work, or end with a report", pairMessages, pairWindow),
		}
	}
	if r.sent == nil {
		r.sent = map[[2]task.ID][]time.Time{}
	}
	r.total++
	r.sent[pair] = append(recent, now)
	return nil
}

// chains has the length of the message chain of each agent: the number of messages in a row by
// which agents have answered each other with nothing done in between. A prompt, a message that
// is not from an agent, the end of a task and the result of a tool end the chain. Its zero
// value is ready.
type chains struct {
	mu    sync.Mutex
	heard map[task.ID]int // of the chain that an agent has read last
}

// next returns the length of the chain with one more message of an agent, or an error if it
// would be too long.
func (c *chains) next(id task.ID, most int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.heard[id] + 1; n <= most {
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

// answer returns the length of the chain with the message that an agent sends to its owner when
// it ends or becomes idle; 0 if that answers no message.
func (c *chains) answer(id task.ID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.heard[id]; n > 0 {
		return n + 1
	}
	return 0
}

// hear records that an agent has read a message of a chain.
func (c *chains) hear(id task.ID, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard == nil {
		c.heard = map[task.ID]int{}
	}
	c.heard[id] = n
}

// worked ends the chain for an agent.
func (c *chains) worked(id task.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heard, id)
}

// on ends the chain when a tool had an effect.
func (c *chains) on(id task.ID, e agent.Event) {
	if e.Kind == agent.ToolDoneEvent && !e.Output.IsError && !slices.Contains(chatter(), e.Call.Name) {
		c.worked(id)
	}
}

// chatter is the set of tools without an effect.
func chatter() []string {
	return []string{
		"SendMessage", "write_agent", "read_agent", "ListTasks", "TaskOutput", "report_intent",
		"TaskGet", "TaskList",
	}
}

// read handles the mail that an agent reads. Mail that is not from an agent ends the chain,
// even if other mail comes with it.
func (c *chains) read(owner task.ID, mail []mailbox.Mail, seqs []task.Seq) {
	longest := 0
	for _, m := range mail {
		if !slices.Contains(seqs, m.Seq) {
			continue
		}
		n := c.answer(m.Notification.Task)
		if m.Message != nil {
			n = m.Message.Hops
		}
		if n == 0 {
			c.worked(owner)
			return
		}
		longest = max(longest, n)
	}
	if longest > 0 {
		c.hear(owner, longest)
	}
}
