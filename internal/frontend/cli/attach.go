package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/task"
)

const (
	attachTries = 5       // hosts that are just going away, one after the other
	attachLine  = 1 << 20 // bytes of a line that is typed
	attachTail  = 40      // lines of the output of a task that were there before
)

func (a *app) attach() *cobra.Command {
	cmd := &cobra.Command{
		Use: "attach [SESSION|REF] [--new]",
		Long: "Join the conversation of a session in the terminal UI, from any number of terminals; see docs/terminal.md.\n" +
			"With --plain, and where the terminal cannot be drawn on, attach shows the end of the conversation as lines, then\n" +
			"what the agent writes, tasks that start and end, and questions. What you type is a prompt; /help lists\n" +
			"commands. Ctrl-C interrupts the turn; pressed twice, or between turns, it leaves, as do Ctrl-D and /detach.\n" +
			"A session without a host gets a detached one. Without a name, attach takes the only live conversation of this\n" +
			"folder, or the last one; of several live ones you choose. The host keeps running without you until its work\n" +
			"is done.\n" +
			"\n" +
			"With the ID of a task, attach shows its output and status until it ends, and sends it what you type. The exit\n" +
			"code is that of the task.\n" +
			"\n" +
			"Each line of piped input is a prompt; attach leaves when nothing is left to answer.",
		Args:              console.Args(0, 1),
		ValidArgsFunction: a.CompleteTasks(false),
	}
	f := cmd.Flags()
	fresh := f.Bool("new", false, "start a new conversation")
	var c prompt.Joining
	f.StringVar(&c.Model, "model", "", "the model, if a host has to be started")
	f.StringVar(&c.Agent, "agent", "", "the type of agent, if a host has to be started")
	f.StringVar(&c.Mode, "permission-mode", "",
		"permission mode, if a host has to be started: "+strings.Join(console.PermissionModes(), ", "))
	plain := plainFlag(cmd)
	a.CompletePrompt(cmd)
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		ctx := cmd.Context()
		if *fresh && len(words) > 0 {
			return console.Usage("--new and SESSION are mutually exclusive", "give one of them")
		}
		if *fresh && a.screened(*plain) {
			return a.show(ctx, Screen{Connect: a.connection(c)}, c)
		}
		if *fresh {
			return a.converse(ctx, func(ctx context.Context) (console.Session, error) { return a.AttachedTo(ctx, c) })
		}
		var s console.Session
		if len(words) > 0 {
			f, err := a.attachable(ctx, words[0], *all)
			switch {
			case err != nil:
				return err
			case f.Record.ID != "":
				return a.attachTask(ctx, f)
			}
			s = f.Session
		} else {
			live, last, err := a.Newest(ctx, *all)
			switch {
			case err != nil:
				return err
			case len(live) > 1 && a.screened(*plain):
				return a.show(ctx, Screen{Choose: true, Everywhere: *all}, c)
			case len(live) > 1:
				return a.SeveralLive(ctx, live, "drover attach SESSION")
			}
			s = last
		}
		connect := func(ctx context.Context) (console.Session, error) {
			if c.Session == "" && s.Info().Live {
				c.Session = s.Info().Session // the next time it has ended
				return s, nil
			}
			if c.Session = s.Info().Session; s.Info().Role != console.Conversing {
				return nil, console.Conflict(fmt.Sprintf("session %s has no conversation", c.Session),
					"attach to one of its tasks, see `drover ps -a`")
			}
			return a.AttachedTo(ctx, c)
		}
		if a.screened(*plain) {
			return a.show(ctx, Screen{Connect: connect}, c)
		}
		return a.converse(ctx, connect)
	}
	return cmd
}

// attachable finds what a word means: a session, whose record is empty then, or a
// task.
func (a *app) attachable(ctx context.Context, word string, all bool) (f console.Found, err error) {
	for _, where := range console.SearchOrder(word, all) {
		known, listed := a.Known(ctx, false, where[0].All)
		if listed != nil {
			return console.Found{}, fmt.Errorf("list sessions: %w", listed)
		}
		s, other := console.PickSession(known, word)
		if other == nil && string(s.Info().Session) == word {
			return console.Found{Session: s}, nil
		}
		if f, err = a.Search(ctx, word, where); err == nil && f.Record.IsConversation() {
			return console.Found{Session: f.Session}, nil
		}
		if !console.NotFound(err) {
			return f, err
		}
		if !console.NotFound(other) {
			return console.Found{Session: s}, other
		}
	}
	return f, err
}

// converse takes part in the conversation that open finds, until the user leaves or
// it ends. open is asked again when a host was just going away.
func (a *app) converse(ctx context.Context, open func(context.Context) (console.Session, error)) error {
	for tries := 1; ; tries++ {
		s, err := open(ctx)
		if err != nil {
			return err
		}
		again, err := a.takePart(ctx, s)
		if !again || tries == attachTries {
			return err
		}
	}
}

// takePart is one attachment to a live session; again says that its host was going
// away and nothing was shown.
func (a *app) takePart(ctx context.Context, s console.Session) (again bool, err error) {
	api, done, err := s.Open(ctx)
	if err != nil {
		return false, fmt.Errorf("open session %s: %w", s.Info().Session, err)
	}
	defer done()
	t := a.newAttachment(api, s.Info())
	err = t.run(ctx, func(ctx context.Context) error {
		t.hark(ctx, t.watch, t.questions)
		return nil
	})
	return control.Refused(err) && !t.scene.opened && s.Gone(ctx), err
}

// heard is something that one of the listeners of an attachment has heard.
type heard struct {
	piece     *control.Piece
	event     *task.Event
	questions *control.Approvals
	output    *control.Chunk
	line      string
	typed     bool // line is set
	eof       bool // nothing more is typed
	idle      bool // nothing is left to answer
	lost      bool // the host of the task has gone
	over      error
}

// errLeft ends an attachment as the user wanted.
var errLeft = errors.New("left")

// attachment is one user at one session, or at one task of it.
type attachment struct {
	a      *app
	api    control.API
	info   control.Info
	record task.Record // of the task that is looked at; zero: the whole conversation
	scene  scene
	canvas *canvas
	typed  strings.Builder // lines that go on in the next
	failed error           // what could not be sent of piped input

	ears  chan heard
	deaf  context.CancelFunc // ends the listeners
	group sync.WaitGroup     // listeners; run waits for them

	done   func()                // lets go of the host of a task
	next   control.OutputRequest // of the task
	losses int                   // hosts of the task that have gone
}

func (a *app) newAttachment(api control.API, info control.Info) *attachment {
	terminal := a.ReadsTerminal()
	return &attachment{a: a, api: api, info: info, ears: make(chan heard), canvas: newCanvas(a.Stdout, a.Now),
		scene: scene{session: info.Session, echoed: terminal}}
}

// hark begins to listen to a host.
func (t *attachment) hark(ctx context.Context, listen ...func(context.Context)) {
	ctx, t.deaf = context.WithCancel(ctx)
	for _, l := range listen {
		t.group.Go(func() { l(ctx) })
	}
}

// run listens and shows until the user leaves or what is attached to ends.
func (t *attachment) run(ctx context.Context, begin func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer t.group.Wait()
	defer cancel(errLeft)
	if err := begin(ctx); err != nil {
		return err
	}
	pressed, ref := make(chan struct{}, 1), t.ref() // not later: the record changes with the host
	t.a.heedInterrupts(ctx, pressed, func() {
		t.a.Note("left %s, which does not answer; `drover attach %s` comes back", ref, ref)
		cancel(errLeft)
	})
	if t.record.ID != "" {
		t.listen(ctx)
	}
	err := t.loop(ctx, pressed)
	if flushed := t.canvas.flush(); err == nil || errors.Is(err, errLeft) {
		err = cmp.Or(flushed, t.failed)
	}
	return err
}

// heedInterrupts has every INT told. One that comes while nobody has taken the last
// leaves: whoever should is held up by a host that does not answer.
func (a *app) heedInterrupts(ctx context.Context, pressed chan<- struct{}, leave func()) {
	if a.OnInterrupt == nil {
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
			a.OnInterrupt(ctx, heed)
		}
	}
	a.OnInterrupt(ctx, heed)
}

// loop shows what is heard and does what the user wants.
func (t *attachment) loop(ctx context.Context, pressed <-chan struct{}) error {
	var settle <-chan time.Time // nil: no text waits for the end of its line
	for {
		switch held := t.canvas.held(); {
		case !held:
			settle = nil
		case settle == nil: // else more of the line has come, and must not put it off
			settle = time.After(console.LogSettle)
		}
		var err error
		select {
		case h := <-t.ears:
			err = t.hear(ctx, h)
		case <-settle:
			err = t.canvas.flush()
		case <-pressed:
			if err = t.catchUp(ctx); err == nil {
				err = t.act(ctx, t.interrupted())
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// mostAhead is more than is heard at once.
const mostAhead = 64

// catchUp takes in what was heard already: a line that was typed before Ctrl-C is
// what Ctrl-C is about.
func (t *attachment) catchUp(ctx context.Context) error {
	for range mostAhead {
		select {
		case h := <-t.ears:
			if err := t.hear(ctx, h); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

func (t *attachment) interrupted() deed {
	if t.record.ID != "" {
		t.scene.busy = t.record.Kind.IsAgent() // a command is not broken off by who looks at it
	}
	return t.scene.interrupt(t.a.Now())
}

func (t *attachment) hear(ctx context.Context, h heard) error {
	switch {
	case h.piece != nil:
		if h.piece.Kind == control.OpenPiece && !t.scene.opened {
			t.listen(ctx) // not before: a host that goes away at once must not cost a line
		}
		if err := t.canvas.draw(t.scene.piece(*h.piece)...); err != nil {
			return err
		}
		return t.act(ctx, t.scene.begun())
	case h.event != nil:
		return t.canvas.draw(t.scene.event(*h.event)...)
	case h.questions != nil:
		return t.canvas.draw(t.scene.asked(h.questions.Questions)...)
	case h.output != nil:
		return t.canvas.draw(shown{kind: showText, text: string(h.output.Data)})
	case h.typed:
		return t.take(ctx, h.line)
	case h.eof:
		return t.closed(ctx)
	case h.idle:
		return t.leave(ctx)
	case h.lost:
		return t.goOn(ctx)
	}
	var end *taskEnd
	if !errors.As(h.over, &end) {
		return h.over
	}
	verb := map[task.Status]task.Verb{task.Completed: task.Complete, task.Failed: task.Fail,
		task.Killed: task.Stop}[end.record.Status]
	if err := t.canvas.draw(shown{kind: showTask, task: end.record, verb: verb}); err != nil {
		return err
	}
	if code := console.CodeOf(end.record); code != 0 {
		return &console.ExitError{Code: code}
	}
	return errLeft
}

// take takes a line in.
func (t *attachment) take(ctx context.Context, line string) error {
	if open, more := strings.CutSuffix(line, `\`); more {
		t.typed.WriteString(open + "\n")
		return nil
	}
	t.typed.WriteString(line)
	text := t.typed.String()
	t.typed.Reset()
	return t.act(ctx, t.scene.typed(text))
}

// closed is the end of what is typed: somebody at a terminal leaves; piped input
// has been sent, and what it leads to is followed.
func (t *attachment) closed(ctx context.Context) error {
	if t.typed.Len() > 0 {
		if err := t.take(ctx, ""); err != nil {
			return err
		}
	}
	switch {
	case t.scene.echoed:
		return t.act(ctx, deed{do: doDetach})
	case t.record.ID == "":
		t.group.Go(func() { t.rest(ctx) })
	}
	return nil // a task is followed to its end
}

// act does what the user wants. What is refused is told, and the attachment goes on.
func (t *attachment) act(ctx context.Context, d deed) error {
	err := t.try(ctx, d)
	if err == nil || errors.Is(err, errLeft) || ctx.Err() != nil {
		return err
	}
	if d.do == doSay && !t.scene.echoed {
		t.failed = err
	}
	return t.canvas.draw(shown{kind: showNote, text: err.Error()})
}

func (t *attachment) try(ctx context.Context, d deed) error {
	if d.why != "" {
		return errors.New(d.why)
	}
	switch d.do {
	case doSay:
		return t.say(ctx, d.text)
	case doTasks:
		return t.tasks(ctx)
	case doStop:
		receipt, err := t.api.Stop(ctx, control.StopRequest{Refs: []string{d.text}, Actor: task.ByUser})
		if err != nil {
			return fmt.Errorf("stop %s: %w", d.text, err)
		}
		return t.printed(func(a *app) error { return a.PrintReceipt(receipt, false) })
	case doAnswer:
		req := control.DecideRequest{ID: d.question.ID, Digest: d.question.Digest, Reply: d.reply, Actor: task.ByUser}
		if d.always { // the question has shown the rule
			req.Always = d.question.Suggest
		}
		if err := t.api.Decide(ctx, req); err != nil {
			return fmt.Errorf("answer %s: %w", d.question.ID, err)
		}
		if d.always {
			t.scene.answered(d.question)
			return t.canvas.draw(shown{kind: showNote, text: console.Written(d.question.Suggest)})
		}
		t.scene.answered(d.question)
	case doInterrupt:
		_, err := t.api.Interrupt(ctx, t.ref())
		if err != nil {
			return fmt.Errorf("interrupt %s: %w", t.ref(), err)
		}
	case doHelp:
		return t.printed(func(a *app) error { _, err := io.WriteString(a.Stdout, attachHelp); return err })
	case doDetach:
		t.a.Note("left %s without ending it; `drover attach %s` comes back", t.ref(), t.ref())
		return errLeft
	}
	return nil
}

// ref is what is attached to.
func (t *attachment) ref() string {
	return cmp.Or(string(t.record.ID), string(t.info.Session))
}

func (t *attachment) say(ctx context.Context, text string) error {
	if t.record.ID == "" {
		if err := t.api.Prompt(ctx, control.PromptRequest{Text: text}); err != nil {
			t.scene.mine(text) // nobody will say it
			return fmt.Errorf("the prompt was not taken: %w", err)
		}
		t.scene.said()
		return nil
	}
	if _, err := t.api.Send(ctx, control.SendRequest{Ref: t.ref(), Text: text, Env: t.a.Env}); err != nil {
		return fmt.Errorf("send to %s: %w", t.ref(), err)
	}
	return t.canvas.draw(shown{kind: showNote, text: "told " + t.ref()})
}

// tasks lists what runs.
func (t *attachment) tasks(ctx context.Context) error {
	page, err := t.api.List(ctx, control.ListRequest{Limit: console.TablePage})
	if err != nil {
		return fmt.Errorf("list tasks: %w", err)
	}
	records, depth := console.Family(page.Tasks)
	return t.printed(func(a *app) error {
		rows := a.TaskRows(records, depth, false)
		return a.Table(rows, console.OfTasks(rows, records))
	})
}

// printed prints as other commands do, behind what was shown.
func (t *attachment) printed(print func(*app) error) error {
	if err := t.canvas.fresh(); err != nil {
		return err
	}
	onto := *t.a
	onto.Stdout = t.canvas
	return print(&onto)
}

// leave shows what is left to be shown, and leaves.
func (t *attachment) leave(ctx context.Context) error {
	for p, err := range t.api.Watch(ctx, control.WatchRequest{After: t.scene.mark, Snapshot: true}) {
		if err == nil {
			err = t.canvas.draw(t.scene.piece(p)...)
		}
		if err != nil {
			return err
		}
	}
	return t.act(ctx, deed{do: doDetach})
}

// tell hands something that was heard to the loop.
func (t *attachment) tell(ctx context.Context, h heard) bool {
	select {
	case t.ears <- h:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch follows the conversation, for as long as the same host answers.
func (t *attachment) watch(ctx context.Context) {
	mark, begun, losses := control.Mark{}, false, 0
	for {
		var failed error
		for p, err := range t.api.Watch(ctx, control.WatchRequest{After: mark}) {
			if err != nil {
				failed = err
				break
			}
			begun = true
			if p.Kind != control.OpenPiece {
				mark, losses = p.Mark(), 0
			}
			if !t.tell(ctx, heard{piece: &p}) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if losses++; begun && losses < attachTries && t.same(ctx) {
			continue
		}
		if begun {
			failed = t.gone()
		}
		t.tell(ctx, heard{over: cmp.Or(failed, t.gone())})
		return
	}
}

// same reports whether the host is still the one that was attached to.
func (t *attachment) same(ctx context.Context) bool {
	info, err := t.api.Info(ctx)
	return err == nil && info.PID == t.info.PID
}

// gone says that there is nothing to be attached to any more.
func (t *attachment) gone() error {
	return &console.ExitError{Code: console.CodeFailed,
		Err: fmt.Errorf("the host of session %s has ended (`drover attach %s` goes on)",
			t.info.Session, t.ref())}
}

// events follows the tasks, from now on.
func (t *attachment) events(ctx context.Context) {
	now, err := t.api.State(ctx, control.StateRequest{})
	if err != nil {
		return // whoever watches the conversation is told
	}
	after, losses := now.Seq, 0
	for ctx.Err() == nil {
		var failed error
		for e, err := range t.api.Events(ctx, after) {
			if err != nil {
				failed = err
				break
			}
			if after, losses = e.Seq, 0; !t.tell(ctx, heard{event: &e}) {
				return
			}
		}
		if !t.same(ctx) {
			return
		}
		if losses++; losses == attachTries {
			t.deafTo(ctx, failed)
			return
		}
	}
}

// deafTo ends the attachment if a host answers with errors. One that is about to go
// ends its streams before that: whoever watches what is attached to is told how.
func (t *attachment) deafTo(ctx context.Context, failed error) {
	if failed != nil && !console.HostGone(failed) {
		t.tell(ctx, heard{over: failed})
	}
}

// questions follows which questions are open.
func (t *attachment) questions(ctx context.Context) {
	req, losses := control.ApprovalsRequest{Person: true}, 0
	for ctx.Err() == nil {
		list, err := t.api.Approvals(ctx, req)
		if err != nil {
			if !t.same(ctx) {
				return
			}
			if losses++; losses == attachTries {
				t.deafTo(ctx, err)
				return
			}
			continue
		}
		losses = 0
		if !t.tell(ctx, heard{questions: &list}) {
			return
		}
		req.After, req.Wait = list.Version, console.WatchWait
	}
}

// rest tells when nothing is left to answer.
func (t *attachment) rest(ctx context.Context) {
	req := control.StateRequest{}
	for ctx.Err() == nil {
		now, err := t.api.State(ctx, req)
		if err != nil {
			return // whoever watches the conversation is told
		}
		if now.Idle {
			t.tell(ctx, heard{idle: true})
			return
		}
		req = control.StateRequest{After: now.Version, Wait: console.WatchWait}
	}
}

// listen begins to take in what is typed.
func (t *attachment) listen(ctx context.Context) {
	go t.read(ctx) // ends with stdin, or with the program
}

// read reads what is typed.
func (t *attachment) read(ctx context.Context) {
	in := bufio.NewScanner(t.a.Stdin)
	in.Buffer(nil, attachLine)
	for in.Scan() {
		if !t.tell(ctx, heard{line: strings.ToValidUTF8(in.Text(), "\uFFFD"), typed: true}) {
			return
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		t.tell(ctx, heard{over: console.Usage(fmt.Sprintf("the line is longer than %d MiB", attachLine>>20),
			"write it to a file and name the file")})
		return
	}
	t.tell(ctx, heard{eof: true})
}

// attachTask watches one task to its end.
func (a *app) attachTask(ctx context.Context, f console.Found) error {
	t := a.newAttachment(nil, f.Session.Info())
	t.record, t.scene.only = f.Record, f.Record.ID
	t.next = control.OutputRequest{Ref: t.ref(), Tail: attachTail, Max: console.LogPiece}
	defer func() { t.done() }()
	t.done = func() {}
	return t.run(ctx, func(ctx context.Context) error { return t.open(ctx, f) })
}

// open listens to the host of the task, or reads what one has left.
func (t *attachment) open(ctx context.Context, f console.Found) error {
	api, done, err := f.Open(ctx)
	if err != nil {
		return err
	}
	t.done()
	t.api, t.done, t.info, t.record = api, done, f.Session.Info(), f.Record
	listen := []func(context.Context){t.output}
	if f.Live() && !f.Record.Status.Terminal() {
		listen = append(listen, t.events, t.questions)
	}
	t.hark(ctx, listen...)
	return nil
}

// goOn goes over to the next host of the task, or to what the last one has left.
func (t *attachment) goOn(ctx context.Context) error {
	t.deaf()
	t.group.Wait()
	if t.losses++; t.losses > console.HostLosses {
		return t.gone()
	}
	f, err := t.a.AfterHost(ctx, console.Found{Record: t.record})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return t.gone()
	case !f.Live() && !f.Record.Status.Terminal():
		return cmp.Or(t.alone(ctx, f), t.gone())
	}
	return t.open(ctx, f)
}

// alone says why a task that goes on has no host; nil: that is not known.
func (t *attachment) alone(ctx context.Context, f console.Found) error {
	api, done, err := f.Open(ctx)
	if err != nil {
		return nil
	}
	defer done()
	_, err = api.Wait(ctx, control.WaitRequest{Refs: []string{t.ref()}})
	return err
}

// output follows the output of the task, and tells how it has ended.
func (t *attachment) output(ctx context.Context) {
	for {
		c, err := t.api.Output(ctx, t.next)
		if err == nil && len(c.Data) > 0 && !t.tell(ctx, heard{output: &c}) {
			return
		}
		switch {
		case err != nil && !t.same(ctx):
			t.tell(ctx, heard{lost: true})
			return
		case err != nil:
			t.tell(ctx, heard{over: fmt.Errorf("read output of %s: %w", t.ref(), err)})
			return
		}
		t.next = control.OutputRequest{Ref: t.ref(), Offset: c.Next, Max: console.LogPiece, Wait: console.LogWait}
		if c.Ended || !t.info.Live && len(c.Data) == 0 {
			t.tell(ctx, t.verdict(ctx))
			return
		}
	}
}

// verdict is how the task has ended.
func (t *attachment) verdict(ctx context.Context) heard {
	r, err := t.api.Get(ctx, t.ref())
	switch {
	case err != nil && !t.same(ctx), err == nil && !r.Status.Terminal():
		return heard{lost: true}
	case err != nil:
		return heard{over: fmt.Errorf("ask for %s: %w", t.ref(), err)}
	}
	return heard{over: &taskEnd{r}}
}

// taskEnd is the end of the task that was attached to.
type taskEnd struct{ record task.Record }

func (e *taskEnd) Error() string { return "the task has ended" }
