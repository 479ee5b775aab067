package tui

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/task"
)

const (
	maxLine        = 1 << 20                // bytes of a typed line
	settleAfter    = 200 * time.Millisecond // after which a line without its end is printed
	interruptTwice = 2 * time.Second        // in which a second ctrl+c leaves
)

const linesHelp = `A line is a prompt; one that ends in \ continues on the next.
/allow [ID] [always], /deny [ID] [REASON], /answer [ID] TEXT: answer a question, the only open one without ID
/detach, Ctrl-D: leave, the work continues; Ctrl-C: interrupt the turn, or leave between turns
Tasks are listed by drover ps and stopped by drover stop.
`

// Lines is a conversation that is read and typed as lines, without the screen.
type Lines struct {
	In      io.Reader
	Out     io.Writer
	Typed   bool // In is a terminal, which shows what is typed
	Now     func() time.Time
	Connect func(context.Context) (Connection, error)

	// OnInterrupt passes the next INT to a function; nil: there are none.
	OnInterrupt func(context.Context, func())
}

// lineTalk is the state of [Lines.Run]. Its goroutine owns all fields but in.
type lineTalk struct {
	Lines
	conn  Connection
	state transcript.State
	out   *transcript.Lines
	open  []task.Question

	in     chan string   // typed lines; closed at the end of In, after inErr was set
	inErr  error         // of In
	idle   chan struct{} // closed when all prompts of a pipe are answered
	typed  strings.Builder
	failed error // of a prompt of a pipe

	awaited bool // a prompt was accepted, and its turn has not begun
	breaks  bool // that turn is to be interrupted
	broken  time.Time
}

// Run takes part in the conversation until the user leaves, a pipe has ended and its prompts are answered, or the host
// ends. The result names the session that was left.
func (o Lines) Run(ctx context.Context) (Result, error) {
	t := &lineTalk{Lines: o, out: transcript.NewLines(o.Out, o.Now), idle: make(chan struct{})}
	for n := 1; ; n++ {
		var err error
		if t.conn, err = o.Connect(ctx); err != nil {
			return Result{}, err
		}
		err = t.join(ctx)
		t.conn.Release()
		if n < tries && !t.state.Opened && control.Refused(err) {
			continue // the host was ending
		}
		if flushed := t.out.Flush(); err == nil || errors.Is(err, errLeft) {
			return Result{Session: t.conn.Info.Session}, cmp.Or(flushed, t.failed)
		}
		return Result{}, err
	}
}

// join takes part until something ends that.
func (t *lineTalk) join(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	heard, pressed := make(chan news), make(chan struct{}, 1)
	l := &listener{ctx: ctx, send: func(m tea.Msg) {
		select {
		case heard <- m.(news):
		case <-ctx.Done():
		}
	}}
	defer l.close()
	defer cancel(errLeft)
	l.attach(t.conn, 0)
	t.heedInterrupts(ctx, pressed, func() { cancel(errLeft) })
	var settle <-chan time.Time
	for {
		switch {
		case !t.out.Held():
			settle = nil
		case settle == nil: // else more of the line must not delay it
			settle = time.After(settleAfter)
		}
		var err error
		select {
		case n := <-heard:
			err = t.hear(ctx, l, n)
		case <-settle:
			err = t.out.Flush()
		case line, more := <-t.in:
			if err = t.take(ctx, line); !more {
				err = cmp.Or(err, t.end(ctx, l))
			}
		case <-pressed:
			err = t.interrupt(ctx)
		case <-t.idle:
			err = cmp.Or(t.rest(ctx), errLeft)
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
}

// heedInterrupts reports each INT to the loop. One that comes before the loop has taken the last leaves: then the loop
// waits for a host that does not answer.
func (t *lineTalk) heedInterrupts(ctx context.Context, pressed chan<- struct{}, leave func()) {
	if t.OnInterrupt == nil {
		return
	}
	var heed func()
	heed = func() {
		select {
		case pressed <- struct{}{}:
		default:
			leave()
		}
		if ctx.Err() == nil {
			t.OnInterrupt(ctx, heed)
		}
	}
	t.OnInterrupt(ctx, heed)
}

// hear applies news of the session and prints them.
func (t *lineTalk) hear(ctx context.Context, l *listener, n news) error {
	for _, p := range n.pieces {
		if err := t.piece(ctx, p); err != nil {
			return err
		}
	}
	if t.state.Opened && t.in == nil { // earlier, a host that ends at once would cost a line
		t.in = make(chan string)
		go t.read(l.ctx, t.in) // ends with In, at the latest with the process
	}
	if n.questions != nil {
		if err := t.questions(n.questions.Questions); err != nil {
			return err
		}
	}
	if n.lost != nil && t.state.Opened {
		id := t.conn.Info.Session
		return fmt.Errorf("the host of session %s has ended (`drover attach %s` continues)", id, id)
	}
	return n.lost
}

func (t *lineTalk) piece(ctx context.Context, p control.Piece) error {
	old := t.state.Mark.N < t.state.Until
	t.state.Apply(p)
	switch past := p.N >= t.state.Until; {
	case p.Kind == control.OpenPiece || old && !past:
		return nil // the earlier conversation is printed once it is complete
	case old:
		return t.out.Past(&t.state, t.conn.Info.Session)
	}
	if err := t.out.Show(&t.state); err != nil || p.Kind != control.BeginPiece {
		return err
	}
	t.awaited = false
	if t.breaks {
		t.breaks = false
		return t.interruptTurn(ctx)
	}
	return nil
}

// questions prints the questions that were opened.
func (t *lineTalk) questions(open []task.Question) error {
	before := t.open
	t.open = open
	for _, q := range open {
		known := func(x task.Question) bool { return x.ID == q.ID && x.Digest == q.Digest }
		if slices.ContainsFunc(before, known) {
			continue
		}
		if err := t.out.Question(q); err != nil {
			return err
		}
	}
	return nil
}

// read reads typed lines.
func (t *lineTalk) read(ctx context.Context, lines chan<- string) {
	defer close(lines)
	in := bufio.NewScanner(t.In)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		select {
		case lines <- strings.ToValidUTF8(in.Text(), "\uFFFD"):
		case <-ctx.Done():
			return
		}
	}
	if t.inErr = in.Err(); errors.Is(t.inErr, bufio.ErrTooLong) {
		t.inErr = fmt.Errorf("a line is longer than %d MiB (write it to a file and name the file)", maxLine>>20)
	}
}

// end handles the end of In: a person leaves; the prompts of a pipe are waited for.
func (t *lineTalk) end(ctx context.Context, l *listener) error {
	t.in = make(chan string) // no further line
	if err := t.inErr; err != nil {
		return err
	}
	if t.Typed {
		return errLeft
	}
	api := t.conn.API
	l.start(func() {
		for req := (control.StateRequest{}); ; {
			now, err := api.State(ctx, req)
			switch {
			case err != nil:
				return // watch reports it
			case now.Idle:
				close(t.idle)
				return
			}
			req = control.StateRequest{After: now.Version, Wait: watchWait}
		}
	})
	return nil
}

// rest prints the pieces that have not been heard yet.
func (t *lineTalk) rest(ctx context.Context) error {
	for p, err := range t.conn.API.Watch(ctx, control.WatchRequest{After: t.state.Mark, Snapshot: true}) {
		if err = cmp.Or(err, t.piece(ctx, p)); err != nil {
			return err
		}
	}
	return nil
}

// take executes a typed line. An error that is not the end of the conversation is printed.
func (t *lineTalk) take(ctx context.Context, line string) error {
	if open, more := strings.CutSuffix(line, `\`); more {
		t.typed.WriteString(open + "\n")
		return nil
	}
	t.typed.WriteString(line)
	text := strings.TrimSpace(t.typed.String())
	t.typed.Reset()
	err := t.execute(ctx, text)
	if err == nil || errors.Is(err, errLeft) || ctx.Err() != nil {
		return err
	}
	return t.out.Note(err.Error())
}

func (t *lineTalk) execute(ctx context.Context, text string) error {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "":
		return nil
	case "/allow", "/deny", "/answer":
		return t.answer(ctx, word, rest)
	case "/detach", "/quit", "/exit":
		return errLeft
	case "/help", "/?":
		return t.out.Print(linesHelp)
	}
	if err := t.conn.API.Prompt(ctx, control.PromptRequest{Text: text}); err != nil {
		err = fmt.Errorf("the prompt was refused: %w", err)
		if !t.Typed && ctx.Err() == nil {
			t.failed = err
		}
		return err
	}
	t.awaited = !t.state.Busy
	if t.Typed {
		t.out.Own(text)
	}
	return nil
}

// answer answers the question that the words mean.
func (t *lineTalk) answer(ctx context.Context, word, rest string) error {
	id, after, _ := strings.Cut(rest, " ")
	named := slices.DeleteFunc(slices.Clone(t.open),
		func(q task.Question) bool { return id == "" || !strings.HasPrefix(q.ID, id) })
	switch {
	case len(t.open) == 0:
		return errors.New("no question is open")
	case len(named) == 1:
		rest = strings.TrimSpace(after)
	case len(named) > 1, len(t.open) > 1:
		return errors.New("several questions are open: give more of the ID of one")
	default:
		named = t.open
	}
	q := named[0]
	req := control.DecideRequest{ID: q.ID, Digest: q.Digest, Actor: task.ByUser}
	switch {
	case word == "/deny":
		req.Reply.Reason = rest
	case word == "/allow" && rest == "always" && q.Suggest == "":
		return fmt.Errorf("question %s: no rule can allow this call permanently: allow it without always", q.ID)
	case word == "/allow" && rest == "always":
		req.Reply.Allow, req.Always = true, q.Suggest
	case word == "/allow" && rest != "":
		return fmt.Errorf("no question %s is open, or it is more than an ID", rest)
	case word == "/allow":
		req.Reply.Allow = true
	case q.Kind == task.Form:
		req.Reply.Allow, req.Reply.Input = true, json.RawMessage(rest)
	default:
		req.Reply.Allow, req.Reply.Text = true, rest
	}
	if err := q.Check(req.Reply); err != nil {
		return fmt.Errorf("question %s: %w", q.ID, err)
	}
	if err := t.conn.API.Decide(ctx, req); err != nil {
		return fmt.Errorf("answer %s: %w", q.ID, err)
	}
	t.open = slices.DeleteFunc(slices.Clone(t.open), func(x task.Question) bool { return x.ID == q.ID })
	if req.Always != "" {
		return t.out.Note(transcript.AddsRule(q.Suggest))
	}
	return nil
}

// interrupt handles ctrl+c: it interrupts the turn, or the one about to begin, and leaves if there is none or if it
// comes twice.
func (t *lineTalk) interrupt(ctx context.Context) error {
	now := t.Now()
	if !t.state.Busy && !t.awaited || !t.broken.IsZero() && now.Sub(t.broken) < interruptTwice {
		return errLeft
	}
	t.broken = now
	if !t.state.Busy {
		t.breaks = true
		return nil
	}
	return t.interruptTurn(ctx)
}

// interruptTurn interrupts the turn of the main agent. An error is printed.
func (t *lineTalk) interruptTurn(ctx context.Context) error {
	if _, err := t.conn.API.Interrupt(ctx, string(t.conn.Info.Session)); err != nil && ctx.Err() == nil {
		return t.out.Note("interrupt: " + err.Error())
	}
	return nil
}
