package agent

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrNoTurn says that no turn is running that could be moved.
var ErrNoTurn = errors.New("no turn is running")

// surroundings are what a loop shares with whoever holds its conversation. A turn that
// is moved gets others.
type surroundings struct {
	// step is held from where mail is taken to where it is recorded and acknowledged: in
	// between a turn is not moved.
	step  sync.Mutex
	begun bool // guarded by step: the turn has recorded what it answers

	keeping    sync.Mutex  // held while a record is kept
	transcript *Transcript // guarded by keeping

	mail Mail // guarded by step

	mu        sync.Mutex
	reminders Reminders // guarded by mu
	agentID   string    // guarded by mu
}

func (s *surroundings) file() *Transcript {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	return s.transcript
}

func (s *surroundings) source() Reminders {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reminders
}

// speaker is who asks the model.
func (s *surroundings) speaker() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agentID
}

func (s *surroundings) end() {
	s.step.Lock()
	defer s.step.Unlock()
	s.begun = false
}

// Move says where a turn goes on that is moved.
type Move struct {
	// Fork makes the transcript of the turn, a copy of the one so far. Nothing is
	// appended to either meanwhile. It is not called where there is none so far.
	Fork func() (*Transcript, error)
	Mail Mail        // that the turn reads from now on; nil: none
	On   func(Event) // as [Config.On], from now on
	// AgentID is who speaks from now on, as the model is told.
	AgentID string
	// Note is what the model of the conversation reads that goes on without the turn:
	// as the result of each call under way, and behind them.
	Note string
}

// MoveTurn takes the turn that is running out of its conversation, at once: the turn goes
// on as it is in this loop, which keeps a transcript of its own from now on, reads other
// mail and is reminded of nothing. It returns the messages with which another loop can go
// on with the conversation, in the transcript that this loop has had. Whatever the turn
// does later is not in them.
//
// It is [ErrNoTurn] if no turn is running, or if it has not recorded what it answers.
// After an error nothing has changed.
func (l *Loop) MoveTurn(to Move) ([]Message, error) {
	if l.busy.TryLock() {
		l.busy.Unlock()
		return nil, ErrNoTurn
	}
	a := &l.around
	a.step.Lock()
	defer a.step.Unlock()
	if !a.begun {
		return nil, ErrNoTurn
	}
	a.keeping.Lock()
	defer a.keeping.Unlock()
	messages := l.Messages()
	note, err := handedOver(messages, to.Note)
	if err != nil {
		return nil, fmt.Errorf("move a turn: %w", err)
	}
	if a.transcript != nil {
		own, err := to.Fork()
		if err != nil {
			return nil, fmt.Errorf("move a turn: %w", err)
		}
		if err := a.transcript.Append(Record{Message: note}); err != nil {
			return nil, errors.Join(fmt.Errorf("move a turn: %w", err), own.Close())
		}
		a.transcript = own
	}
	a.mail = to.Mail
	a.mu.Lock()
	a.reminders, a.agentID = nil, to.AgentID
	a.mu.Unlock()
	l.listen.Lock()
	l.on = to.On
	l.listen.Unlock()
	return append(slices.Clip(messages), note), nil
}

// handedOver is the message behind those of a conversation whose turn goes on elsewhere.
func handedOver(messages []Message, note string) (Message, error) {
	var blocks []Block
	if n := len(messages); n > 0 && messages[n-1].role == Assistant {
		said, err := messages[n-1].Blocks()
		if err != nil {
			return Message{}, err
		}
		for _, b := range said {
			if b.Type == "tool_use" {
				blocks = append(blocks, ToolResultBlock(b.ID, note, false))
			}
		}
	}
	return NewMessage(User, append(blocks, TextBlock(note))...), nil
}
