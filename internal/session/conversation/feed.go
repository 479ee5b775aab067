package conversation

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Limits of the part of a conversation that is kept for viewers. The transcript has all of it.
const (
	feedPieces = 2000
	feedBytes  = 2 << 20
	feedEvent  = 2 << 10  // about the size of an event without its texts
	feedText   = 64 << 10 // of one piece of the agent's text
	feedPart   = 2 << 10  // of a result or a message
	feedInput  = 16 << 10 // of an input, since an edit is shown as a diff
)

// Feed is the recent part of a conversation for viewers. The agent adds to it and never blocks:
// each reader has its own position, and a slow one finds a gap. The zero value is ready.
type Feed struct {
	mu     sync.Mutex      // guards the fields below
	pieces []control.Piece // oldest first; their numbers are consecutive
	bytes  int             // about what they take
	last   int64           // number of the newest
	said   bool            // the agent has written something in this turn

	// Only take uses these; events come one after the other.
	coming bool            // the latest text of the agent belongs to an unfinished reply
	calls  map[string]bool // by ID: started calls without a result

	grown chan struct{} // closed when more comes; nil: no one waits

	telling sync.Mutex // held while notices are added, in the order of the log; taken before mu
	told    task.Seq   // the newest event that was looked at; guarded by telling
}

// Log is the log of the session, of which viewers see what happens to tasks.
type Log interface {
	Since(ctx context.Context, after task.Seq) ([]task.Event, error)
}

// add appends a piece.
func (f *Feed) add(p control.Piece) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.push(p)
}

// push is add. The caller holds mu.
func (f *Feed) push(p control.Piece) {
	f.last++
	p.N = f.last
	if p.At.IsZero() {
		p.At = time.Now().UTC()
	}
	p.Text = strings.ToValidUTF8(p.Text, "\uFFFD")
	f.pieces, f.bytes = append(f.pieces, p), f.bytes+weight(p)
	f.trim()
	f.wake()
}

// write appends to the text of the agent.
func (f *Feed) write(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text = strings.ToValidUTF8(text, "\uFFFD")
	if text == "" {
		return
	}
	f.said = true
	f.grow(control.TextPiece, text)
}

// think appends to the thinking of the agent.
func (f *Feed) think(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text = strings.ToValidUTF8(text, "\uFFFD"); text != "" {
		f.grow(control.ThinkingPiece, text)
	}
}

// grow appends to the newest piece if it is of the kind. The caller holds mu.
func (f *Feed) grow(kind control.PieceKind, text string) {
	n := len(f.pieces)
	if n == 0 || f.pieces[n-1].Kind != kind || len(f.pieces[n-1].Text)+len(text) > feedText {
		f.push(control.Piece{Kind: kind, Text: text})
		return
	}
	f.pieces[n-1].Text += text
	f.bytes += len(text)
	f.trim()
	f.wake()
}

// trim removes the oldest pieces, but never the newest. The caller holds mu.
func (f *Feed) trim() {
	gone := 0
	for gone < len(f.pieces)-1 && (len(f.pieces)-gone > feedPieces || f.bytes > feedBytes) {
		f.bytes -= weight(f.pieces[gone])
		gone++
	}
	clear(f.pieces[:gone]) // the array stays until append allocates a new one
	f.pieces = f.pieces[gone:]
}

// weight is about the size of a piece in memory.
func weight(p control.Piece) int {
	n := len(p.Text)
	if p.Event != nil {
		n += feedEvent + lifecycle.Weight(&p.Event.Task)
	}
	return n
}

// wake wakes waiting readers. The caller holds mu.
func (f *Feed) wake() {
	if f.grown != nil {
		close(f.grown)
		f.grown = nil
	}
}

// Newest returns the number of the newest piece.
func (f *Feed) Newest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Next returns the pieces after a position, or, without any, a channel that is closed when
// there are more.
func (f *Feed) Next(m control.Mark) (p control.Piece, ok bool, grown <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := f.last - int64(len(f.pieces)) + 1
	switch {
	case m.N > f.last: // of another host: everything is new
		m = control.Mark{}
	case m.N >= oldest && m.N > 0:
		if p := f.pieces[m.N-oldest]; m.Len < len(p.Text) {
			p.From, p.Text = m.Len, p.Text[m.Len:]
			return p, true, nil
		}
	}
	switch at := m.N + 1; {
	case at < oldest:
		return control.Piece{N: oldest - 1, Kind: control.GapPiece, At: f.pieces[0].At}, true, nil
	case at <= f.last:
		return f.pieces[at-oldest], true, nil
	}
	if f.grown == nil {
		f.grown = make(chan struct{})
	}
	return p, false, f.grown
}

// begin records the start of a turn, and end its end.
func (f *Feed) begin(prompt []agent.Block, origin string) {
	p := control.Piece{Kind: control.BeginPiece, Origin: origin}
	if len(prompt) > 0 {
		p.Text, p.Cut = short(prompt[0].Text, feedText)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = false
	f.push(p)
}

func (f *Feed) end(res agent.TurnResult, err error, running int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text, cut := short(res.Text, feedText); !f.said && text != "" { // the answer is not from a model
		f.push(control.Piece{Kind: control.TextPiece, Text: text, Cut: cut})
	}
	p := control.Piece{Kind: control.EndPiece, Running: running}
	if err != nil {
		p.Error, _ = short(err.Error(), feedPart)
	}
	f.push(p)
}

// take handles an event of the conversation.
func (f *Feed) take(e agent.Event) {
	switch e.Kind {
	case agent.TurnStartEvent:
		f.coming, f.calls = false, nil
	case agent.PartEvent:
		f.part(e.Part)
	case agent.ReplyDoneEvent:
		f.coming = false
	case agent.BlockEvent:
		if e.Block.Type == "text" && !strings.HasSuffix(e.Block.Text, "\n") {
			f.write("\n")
		}
	case agent.MailEvent:
		for _, l := range e.Mail {
			p := control.Piece{Kind: control.MailPiece, Origin: l.Origin}
			p.Text, p.Cut = short(l.Text, feedPart)
			f.add(p)
		}
	case agent.ToolStartEvent:
		if f.calls == nil {
			f.calls = map[string]bool{}
		}
		f.calls[e.Call.ID] = true
		f.add(call(e.Call.Name, e.Call.ID, string(e.Call.Input)))
	case agent.ToolDoneEvent:
		if !f.calls[e.Call.ID] { // it was denied and has not begun
			f.add(call(e.Call.Name, e.Call.ID, string(e.Call.Input)))
		}
		delete(f.calls, e.Call.ID)
		f.add(answer(e.Call.Name, e.Call.ID, e.Output.Text, e.Output.IsError))
	case agent.BlockedEvent:
		f.add(control.Piece{Kind: control.NotePiece, Text: "going on: " + e.Text})
	case agent.CompactEvent:
		text := "the conversation was summed up"
		if e.Err != nil {
			text = e.Err.Error()
		}
		f.add(control.Piece{Kind: control.NotePiece, Text: text})
	}
}

// part handles a part of a reply. The text of a failed reply is marked as void, since readers
// may have it already.
func (f *Feed) part(p agent.Part) {
	switch p.Kind {
	case agent.TextPart:
		f.coming = f.coming || p.Text != ""
		f.write(p.Text)
	case agent.ThinkingPart:
		f.think(p.Text)
	case agent.VoidPart:
		if f.coming {
			f.coming = false
			f.write("\n")
			f.add(control.Piece{Kind: control.NotePiece, Text: "the partial answer above is discarded"})
		}
	case agent.RetryPart, agent.FallbackPart:
		said := p.Retry.String()
		if p.Kind == agent.FallbackPart {
			said = p.Fallback.String()
		}
		text, _ := short(said, feedPart)
		f.add(control.Piece{Kind: control.NotePiece, Text: text})
	}
}

func call(tool, id, input string) control.Piece {
	p := control.Piece{Kind: control.CallPiece, Tool: tool, Call: id}
	p.Text, p.Cut = short(input, feedInput)
	return p
}

func answer(tool, id, text string, failed bool) control.Piece {
	p := control.Piece{Kind: control.ResultPiece, Tool: tool, Call: id}
	p.Text, p.Cut = short(text, feedPart)
	if failed {
		p.Error = archive.Why(text)
	}
	return p
}

// short returns the beginning of a text, in whole characters, and how many bytes are missing.
func short(text string, most int) (string, int) {
	if len(text) <= most {
		return text, 0
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut], len(text) - cut
}

// CatchUp adds the events of tasks until now. It is called when the log has grown, and before the words that the agent
// says next, so that viewers see both in the order in which they happened.
func (f *Feed) CatchUp(ctx context.Context, log Log) error {
	f.telling.Lock()
	defer f.telling.Unlock()
	for {
		events, err := log.Since(ctx, f.told)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if f.told = e.Seq; visible(e) {
				f.add(notice(e))
			}
		}
	}
}

func notice(e task.Event) control.Piece {
	return control.Piece{Kind: control.TaskPiece, At: e.At, Event: &e}
}

// ReportedVerbs are the changes of tasks that viewers of a conversation see.
func ReportedVerbs() []task.Verb {
	return []task.Verb{task.Create, task.Resume, task.Background, task.Pause, task.Thaw, task.Park, task.Unpark,
		task.Complete, task.Fail, task.Stop}
}

// visible reports whether viewers see an event: a command for which the agent waits is seen as a call.
func visible(e task.Event) bool {
	r := e.Task
	return slices.Contains(ReportedVerbs(), e.Verb) && !r.IsConversation() &&
		(r.Backgrounded || r.Traits().Work != task.ByCommand)
}

// Past is what viewers see of earlier hosts: the end of the transcript, and what happened to tasks meanwhile. Both
// are in the order in which they happened.
func Past(records []agent.Record, events []task.Event) []control.Piece {
	said := pastOf(records)
	if len(said) == 0 {
		return nil
	}
	var out []control.Piece
	live := map[task.ID]task.Record{}
	for _, p := range said {
		for len(events) > 0 && events[0].At.Before(p.At) {
			e := events[0]
			events = events[1:]
			if live[e.Task.ID] = e.Task; e.Task.Status.Terminal() {
				delete(live, e.Task.ID)
			}
			if visible(e) && !e.At.Before(said[0].At) {
				out = append(out, notice(e))
			}
		}
		if p.Kind == control.EndPiece {
			p.Running = Running(slices.Collect(maps.Values(live)))
		}
		out = append(out, p)
	}
	for _, e := range events {
		if visible(e) {
			out = append(out, notice(e))
		}
	}
	return out
}

// Running counts the background tasks among the live ones, without those below others.
func Running(live []task.Record) (n int) {
	for _, r := range live {
		below := slices.ContainsFunc(live, func(other task.Record) bool {
			return other.ID == r.Parent && !other.IsConversation()
		})
		if r.Backgrounded && !r.Paused && !r.IsConversation() && !below {
			n++
		}
	}
	return n
}

// pastOf is the conversation of a transcript, without the texts that Drover has put into messages of the user.
func pastOf(records []agent.Record) (out []control.Piece) {
	tools := map[string]string{} // by the ID of the call
	open, at := false, time.Time{}
	add := func(p control.Piece) {
		p.At = at
		out = append(out, p)
	}
	begin := func(text, origin string) {
		p := control.Piece{Kind: control.BeginPiece, Origin: origin}
		p.Text, p.Cut = short(text, feedText)
		add(p)
		open = true
	}
	end := func() {
		if open {
			add(control.Piece{Kind: control.EndPiece})
		}
		open = false
	}
	for _, r := range records {
		blocks, err := r.Message.Blocks()
		if err != nil || r.Aside {
			continue // as the next host would
		}
		if r.Prompt > 0 { // an earlier turn was broken off
			end()
		}
		at = r.At.UTC()
		if r.Boundary != nil {
			add(control.Piece{Kind: control.NotePiece, Text: "the conversation was summed up"})
			continue
		}
		calls := false
		for i, b := range blocks {
			text := strings.TrimSpace(b.Text)
			switch {
			case b.Type == "tool_use":
				calls, tools[b.ID] = true, b.Name
				add(call(b.Name, b.ID, string(b.Input)))
			case b.Type == "tool_result":
				add(answer(tools[b.ToolUseID], b.ToolUseID, archive.ResultText(b.Content), b.IsError))
			case b.Type == "thinking" && b.Thinking != "":
				add(control.Piece{Kind: control.ThinkingPiece, Text: b.Thinking})
			case i+1 == r.Prompt:
				begin(cmp.Or(r.Typed, text), "")
			case b.Type != "text" || text == "":
			case r.Message.Role() == agent.Assistant:
				p := control.Piece{Kind: control.TextPiece}
				p.Text, p.Cut = short(text+"\n", feedText)
				add(p)
			case len(r.Mail) > 0 && !strings.HasPrefix(text, "<system-reminder>"):
				if !open {
					begin("", TaskOrigin)
				}
				p := control.Piece{Kind: control.MailPiece, Origin: TaskOrigin}
				p.Text, p.Cut = short(text, feedPart)
				add(p)
			case r.Prompt == 0 && !strings.HasPrefix(text, "<"): // before prompts were numbered
				end()
				begin(text, "")
			}
		}
		if r.Message.Role() == agent.Assistant && !calls {
			end()
		}
	}
	end()
	return out
}

// seed adds the pieces of earlier hosts, until an event of the log.
func (f *Feed) seed(past []control.Piece, newest task.Seq) {
	f.telling.Lock()
	f.told = newest
	f.telling.Unlock()
	for _, p := range past {
		f.add(p)
	}
}
