// Package transcript shows a conversation: it folds the pieces of a session into a
// list of blocks, and draws blocks as lines.
//
// [State.Apply] is the only function that makes blocks of pieces; it does
// no I/O. A [Drawer] draws a block once for each revision and width. A [Window] shows a
// part of the list and looks at no block outside of it, so that its cost does not grow
// with the conversation.
package transcript

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Kind is the kind of a [Block].
type Kind int

// The kinds of blocks.
const (
	Prompt   Kind = iota // from the user or a client
	Answer               // text of the agent
	Thinking             // of the agent
	Call                 // a call of a tool, with its result
	Note                 // about the conversation
	Mail                 // a message to the agent
	Task                 // a task began, ended or was moved
	Failure              // a turn failed
	Complete             // the agent declared the work complete
	Output               // of a command
	Turn                 // the duration of a turn, from At to EndAt, and the number of tasks it left running
)

// Block is a part of the conversation. Its texts are as they came: drawing makes them
// harmless.
type Block struct {
	ID   int64 // 1 for the first; never changes
	Rev  int   // another for every change
	Kind Kind
	At   time.Time

	Text string
	Cut  int // bytes that are missing at its end

	Tool, CallID string
	Done         bool // the call has a result
	Result       string
	Failed       string // why the call was denied or failed; empty: it did neither
	ResultCut    int
	EndAt        time.Time // when the result came

	Running int // tasks that ran at the end of the turn

	Verb   task.Verb   // of a task
	Record task.Record // as it was then

	Open bool // the user wants to see all of it

	piece int64 // of which it is a text
}

// Folded reports whether there is more to the block than it shows when it is not open.
func (b Block) Folded() bool {
	switch b.Kind {
	case Call, Thinking, Mail:
		return true
	}
	return false
}

// maxBlocks bounds the list. The transcript of the session has the rest.
const maxBlocks = 20_000

// State is one conversation. The zero value is an empty one.
type State struct {
	Blocks []Block // oldest first; their IDs are consecutive

	Opened bool         // the stream has said how far back it goes
	Until  int64        // the last piece from before the stream was opened
	Mark   control.Mark // of the last piece applied

	Busy  bool      // the agent is in a turn
	Since time.Time // when it began
	Turns int       // that were begun since the stream was opened

	last int64
	done string // the input of the call by which the agent declares the work complete
}

// shortTurn is the longest duration of a turn without a block, if it leaves no task running.
const shortTurn = 2 * time.Second

// Apply adds a piece of the conversation.
func (s *State) Apply(p control.Piece) {
	if p.Kind == control.OpenPiece {
		if !s.Opened { // else the stream is taken up again
			s.Opened, s.Until = true, p.N
		}
		return
	}
	s.Mark = p.Mark()
	switch p.Kind {
	case control.BeginPiece:
		s.Busy, s.Since = true, p.At
		if p.N > s.Until {
			s.Turns++
		}
		if p.Text != "" {
			s.add(Block{Kind: Prompt, Text: p.Text, Cut: p.Cut, At: p.At})
		}
	case control.EndPiece:
		began := s.Busy // else it is not known when
		s.Busy = false
		s.settle(p.At)
		if p.Error != "" {
			s.add(Block{Kind: Failure, Text: p.Error, At: p.At})
		}
		if began && (p.Running > 0 || p.At.Sub(s.Since) > shortTurn) {
			s.add(Block{Kind: Turn, At: s.Since, EndAt: p.At, Running: p.Running})
		}
	case control.TextPiece:
		s.grow(Answer, p)
	case control.ThinkingPiece:
		s.grow(Thinking, p)
	case control.TaskPiece:
		if p.Event != nil {
			s.event(*p.Event)
		}
	case control.CallPiece:
		if p.Tool == completionTool {
			s.done = p.Text
		} else {
			s.add(Block{Kind: Call, Tool: p.Tool, CallID: p.Call, Text: p.Text, Cut: p.Cut, At: p.At})
		}
	case control.ResultPiece:
		s.result(p)
	case control.NotePiece:
		s.add(Block{Kind: Note, Text: p.Text, At: p.At})
	case control.GapPiece:
		s.add(Block{Kind: Note, Text: "what was said before is left out here", At: p.At})
	case control.MailPiece:
		if !strings.HasPrefix(strings.TrimSpace(p.Text), notification) { // shown as the end of the task
			s.add(Block{Kind: Mail, Text: p.Text, Cut: p.Cut, At: p.At})
		}
	}
}

// grow adds what the agent has written to the block of its piece.
func (s *State) grow(kind Kind, p control.Piece) {
	for i := len(s.Blocks) - 1; i >= 0 && p.From > 0; i-- {
		if b := &s.Blocks[i]; b.piece == p.N && b.Kind == kind {
			b.Text, b.Cut = b.Text+p.Text, p.Cut
			b.Rev++
			return
		}
		if s.Blocks[i].Kind == Prompt {
			break
		}
	}
	if strings.TrimSpace(p.Text) != "" {
		s.add(Block{Kind: kind, Text: strings.TrimLeft(p.Text, "\n"), Cut: p.Cut, At: p.At, piece: p.N})
	}
}

// completionTool is the call by which an agent declares the work complete; its text is shown
// in place of the call.
const completionTool = "task_complete"

// notification is how a message begins that tells of the end of a task.
const notification = "<task-notification"

// add appends a block.
func (s *State) add(b Block) *Block {
	s.last++
	b.ID = s.last
	if len(s.Blocks) >= maxBlocks+maxBlocks/10 {
		s.Blocks = slices.Clone(s.Blocks[len(s.Blocks)-maxBlocks:])
	}
	s.Blocks = append(s.Blocks, b)
	return &s.Blocks[len(s.Blocks)-1]
}

// result gives a call its result.
func (s *State) result(p control.Piece) {
	for i := len(s.Blocks) - 1; i >= 0; i-- {
		b := &s.Blocks[i]
		if b.Kind == Call && !b.Done && b.CallID == p.Call && b.Tool == p.Tool {
			b.Done, b.Result, b.ResultCut, b.Failed, b.EndAt = true, p.Text, p.Cut, p.Error, p.At
			b.Rev++
			return
		}
		if b.Kind == Prompt {
			break
		}
	}
	if p.Tool == completionTool {
		var said struct {
			Summary string `json:"summary"`
		}
		if p.Error == "" {
			if json.Unmarshal([]byte(s.done), &said) != nil { // it was cut
				said.Summary = p.Text
			}
			s.add(Block{Kind: Complete, Text: said.Summary, At: p.At})
		}
	} else {
		s.add(Block{Kind: Call, Tool: p.Tool, CallID: p.Call, Done: true, Result: p.Text, ResultCut: p.Cut,
			Failed: p.Error, At: p.At})
	}
}

// settle marks the calls of a turn that has ended without their results.
func (s *State) settle(at time.Time) {
	for i := len(s.Blocks) - 1; i >= 0 && s.Blocks[i].Kind != Prompt; i-- {
		if b := &s.Blocks[i]; b.Kind == Call && !b.Done {
			b.Done, b.Result, b.Failed, b.EndAt = true, "interrupted", "interrupted", at
			b.Rev++
		}
	}
}

// event takes in what happens to a task: that it begins, ends or is moved. Commands that
// the agent waits for are shown as calls.
func (s *State) event(e task.Event) {
	r := e.Task
	if r.IsConversation() || r.Traits().Work == task.ByCommand && !r.Backgrounded {
		return
	}
	switch e.Verb {
	case task.Create, task.Resume, task.Background, task.Pause, task.Thaw, task.Park, task.Unpark,
		task.Complete, task.Fail, task.Stop:
		s.add(Block{Kind: Task, Verb: e.Verb, Record: r, At: e.At})
	}
}

// Tell adds a note of the UI itself.
func (s *State) Tell(text string, at time.Time) { s.add(Block{Kind: Note, Text: text, At: at}) }

// outputLines bounds the lines of a block of output, so that drawing an addition stays
// cheap.
const outputLines = 64

// Print adds output of a command.
func (s *State) Print(text string, at time.Time) {
	for text != "" {
		if n := len(s.Blocks); n == 0 || s.Blocks[n-1].Kind != Output ||
			strings.Count(s.Blocks[n-1].Text, "\n") >= outputLines && strings.HasSuffix(s.Blocks[n-1].Text, "\n") {
			s.add(Block{Kind: Output, At: at})
		}
		b := &s.Blocks[len(s.Blocks)-1]
		end, room := 0, outputLines-strings.Count(b.Text, "\n")
		for room = max(1, room); room > 0 && end < len(text); room-- {
			next := strings.IndexByte(text[end:], '\n')
			if next < 0 {
				end = len(text)
				break
			}
			end += next + 1
		}
		b.Text += text[:end]
		b.Rev++
		text = text[end:]
	}
}

// Messages returns a conversation made of messages.
func Messages(list []control.Message) *State {
	s := &State{Opened: true}
	for _, m := range list {
		for _, p := range m.Parts {
			b := Block{Text: p.Text, Cut: p.Cut, At: m.At}
			switch {
			case p.Type == "text" && m.Role == "assistant":
				b.Kind = Answer
			case p.Type == "text" && strings.HasPrefix(strings.TrimSpace(p.Text), "<system-reminder>"):
				b.Kind = Mail // by the program, not by a person
			case p.Type == "text":
				b.Kind = Prompt
			case p.Type == "thinking":
				b.Kind = Thinking
			case p.Type == "tool_use":
				b.Kind, b.Tool = Call, p.Tool
			case p.Type == "tool_result":
				if s.answer(p) {
					continue
				}
				b.Kind = Note
			default:
				b.Kind, b.Text = Note, p.Type
			}
			if strings.TrimSpace(b.Text) != "" || b.Kind == Call {
				s.add(b)
			}
		}
	}
	return s
}

// answer gives the oldest call without a result one.
func (s *State) answer(p control.Part) bool {
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.Kind == Call && !b.Done {
			b.Done, b.Result, b.ResultCut, b.Failed = true, p.Text, p.Cut, p.Error
			b.Rev++
			return true
		}
	}
	return false
}

// Keep takes over which blocks are open from an earlier state of the same conversation.
func (s *State) Keep(from *State) {
	for i := range s.Blocks {
		if i < len(from.Blocks) && from.Blocks[i].Kind == s.Blocks[i].Kind && from.Blocks[i].Open {
			s.Blocks[i].Open = true
			s.Blocks[i].Rev++
		}
	}
}

// CanOpen reports whether there is more to a block than it shows.
func (s *State) CanOpen(id int64) bool {
	b := s.block(id)
	return b != nil && b.Folded()
}

// Toggle opens a block or folds it again.
func (s *State) Toggle(id int64) {
	if b := s.block(id); b != nil && b.Folded() {
		b.Open = !b.Open
		b.Rev++
	}
}

// OpenAll opens every block, or folds them if all are open.
func (s *State) OpenAll() {
	want := slices.ContainsFunc(s.Blocks, func(b Block) bool { return b.Folded() && !b.Open })
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.Folded() && b.Open != want {
			b.Open = want
			b.Rev++
		}
	}
}

func (s *State) block(id int64) *Block {
	if i := s.index(id); i >= 0 {
		return &s.Blocks[i]
	}
	return nil
}

// index is the place of a block, or -1.
func (s *State) index(id int64) int {
	if len(s.Blocks) == 0 || id < s.Blocks[0].ID || id > s.last {
		return -1
	}
	return int(id - s.Blocks[0].ID)
}

// Prompts are the texts of the prompts, oldest first.
func (s *State) Prompts() []string {
	var list []string
	for _, b := range s.Blocks {
		if b.Kind == Prompt {
			list = append(list, b.Text)
		}
	}
	return list
}
