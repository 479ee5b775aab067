package acpclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/acpwire"
	"github.com/drover-dev/drover/task"
)

// drainWait is how long the output of an ended process is read.
const drainWait = 200 * time.Millisecond

// Bounds of the messages of an agent.
const (
	maxLine      = 8 << 20   // bytes of one message
	maxJunk      = 1000      // lines that are not messages, of one process
	maxShownJunk = 20        // of them, that are shown
	maxRequests  = 64        // of the agent, at once
	maxTurnBytes = 256 << 20 // of updates in one turn
)

// conn is one process of an agent and the connection to it.
type conn struct {
	a    *Agent
	task task.ID
	g    *process.Group

	pipes     process.Streams
	rpc       *acpwire.Conn
	said      tail
	life      context.Context // ends with the process, its stdout, or a broken bound; the cause says why
	lost      context.CancelCauseFunc
	flows     sync.WaitGroup // the readers, and the goroutine that waits for the process
	once      sync.Once      // of close
	waited    chan struct{}  // closed when follow has stopped waiting for the process
	terminals terminals
	headless  *translated // nil: the program speaks ACP
	junk      int         // lines that were not messages; used by Serve only

	init    initialized
	session string // set before the first turn

	turn      atomic.Pointer[turn] // nil: no turn runs
	turnBytes atomic.Int64         // of its updates
}

// launch starts the program and makes its connection the one of the agent.
func (a *Agent) launch(session string) (*conn, error) {
	self, err := a.self.Identity()
	if err == nil && a.cfg.Keeper != nil {
		err = a.cfg.Keeper.Ready()
	}
	if err != nil {
		return nil, err
	}
	b, err := a.o.Bounds("")
	if err != nil {
		return nil, err
	}
	rec := a.o.Host.Record()
	c := &conn{a: a, task: rec.ID}
	args := a.o.Args
	if a.o.Protocol != "" {
		if args, c.headless, err = translate(c, session); err != nil {
			return nil, err
		}
	}
	cmd := process.Command{Args: args, Dir: a.o.Dir, Fork: b.Fork, Session: true,
		Env: append(child.Marks(rec, self), b.Env...)}
	if c.g, c.pipes, err = process.StartPiped(cmd); err != nil {
		return nil, err
	}
	id := c.g.Identity()
	if !a.begun {
		if err = a.o.Host.Begun(child.Record(id)); err == nil {
			a.begun = true
		}
	}
	if err == nil && a.cfg.Keeper != nil {
		err = a.cfg.Keeper.Watch(id, string(rec.ID), false, "")
	}
	c.life, c.lost = context.WithCancelCause(context.Background())
	c.terminals.c = c
	c.connect()
	if err != nil {
		c.close(context.Background(), 0, child.Grace)
		return nil, err
	}
	a.mu.Lock()
	a.conn = c
	a.mu.Unlock()
	return c, nil
}

// connect starts to read.
func (c *conn) connect() {
	var from io.Reader = c.pipes.Out
	var to io.Writer = stdin{c}
	if c.headless != nil {
		from, to = c.headless.client, c.headless
		c.flows.Go(func() { c.headless.read(c.pipes.Out) })
	}
	c.waited = make(chan struct{})
	c.rpc = acpwire.New(from, to, acpwire.Options{MaxLine: maxLine, MaxRequests: maxRequests, Begin: c.begin,
		Fault: c.fault})
	c.flows.Go(func() { _ = c.rpc.Serve(c.life) }) // life has the reason for its end
	heard := make(chan struct{})                   // closed when stderr has ended
	c.flows.Go(func() {
		defer close(heard)
		_, _ = io.Copy(&c.said, c.pipes.Err)
	})
	c.flows.Go(func() { c.follow(heard) })
}

// fault takes a line that is not a message. Programs print other text on stdout, so it is shown and not
// answered.
func (c *conn) fault(f acpwire.Fault) (refuse bool) {
	line, long := f.Line, f.Long
	if long && bytes.Contains(line, []byte(`"method":"session/update"`)) {
		line, long = []byte("an update that is too long"), false
	}
	c.junk++
	switch {
	case long:
		c.lost(fmt.Errorf("it sent a message of %d bytes, more than %d", f.Size, maxLine))
	case c.junk > maxJunk:
		c.lost(fmt.Errorf("it printed more than %d lines that are not messages of the protocol", maxJunk))
	case c.junk <= maxShownJunk:
		c.a.say("%s printed %d bytes that are not a message: %.200q", c.a.o.Name, f.Size, line)
	}
	return false
}

// follow ends the life of the connection with the process, or with its stdout.
func (c *conn) follow(heard <-chan struct{}) {
	ended, cancel := context.WithCancel(c.life)
	defer cancel()
	c.flows.Go(func() {
		<-c.rpc.Done()
		cancel()
	})
	exit, err := c.g.Wait(ended)
	if err != nil && c.life.Err() == nil { // its stdout has ended first
		moment, done := context.WithTimeout(c.life, drainWait)
		exit, err = c.g.Wait(moment)
		done()
	}
	close(c.waited)
	c.pipes.Expire(drainWait) // another process may hold the pipes open
	<-c.rpc.Done()
	<-heard
	what := fmt.Sprintf("its process ended with exit code %d", exit.Code)
	switch {
	case err != nil:
		what = "it has closed its stdout"
	case exit.Signal != 0:
		what = "its process was ended by " + process.SignalName(exit.Signal)
	}
	if text := c.lastWords(); text != "" {
		what += ": " + text
	}
	c.lost(errors.New(what))
}

// lastWords is the last line of stderr.
func (c *conn) lastWords() string {
	all := strings.Split(strings.TrimSpace(c.said.String()), "\n")
	text := strings.TrimSpace(all[len(all)-1])
	return strings.ToValidUTF8(text[:min(len(text), 300)], "")
}

// close ends the process and everything that it has started, and returns when that is done. leave is how long
// the process may take to exit by itself.
func (c *conn) close(ctx context.Context, leave, grace time.Duration) {
	c.once.Do(func() {
		c.terminals.stop()
		_ = c.pipes.In.SetWriteDeadline(time.Unix(1, 0)) // ends a write
		_ = c.pipes.In.Close()
		if leave > 0 {
			moment, done := context.WithTimeout(context.Background(), leave)
			select {
			case <-c.life.Done():
			case <-moment.Done():
			}
			done()
		}
		c.lost(errors.New("it was ended"))
		<-c.waited
		c.a.note(c.task, c.g.End(context.WithoutCancel(ctx),
			process.Ending{Grace: grace, Mark: string(c.task), Table: c.a.cfg.Table}))
		if c.headless != nil {
			c.headless.close()
		}
		c.pipes.Expire(drainWait)
		c.flows.Wait()
		c.rpc.Close()
		c.terminals.wait()
		c.pipes.Close()
		if k := c.a.cfg.Keeper; k != nil {
			_ = k.Forget(c.g.Identity()) // a keeper that has ended has no groups
		}
		c.g.Reap()
		c.g.Close()
	})
}

// bye closes the session, if the agent has a method for it.
func (c *conn) bye(ctx context.Context) {
	if !has(c.init.Capabilities.Session.Close) || c.life.Err() != nil || c.session == "" {
		return
	}
	_, _ = call[struct{}](ctx, c, c.a.patience.leave, acp.AgentMethodSessionClose,
		map[string]any{"sessionId": c.session}) // the process ends in any case
}

// call sends a request and waits for the answer, at most for a time.
func call[T any](ctx context.Context, c *conn, limit time.Duration, method string, params any) (got T, err error) {
	ctx, done := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer to %s within %v", method, limit))
	defer done()
	err = c.rpc.Ask(ctx, method, params, &got)
	switch {
	case err == nil:
		return got, nil
	case ctx.Err() != nil:
		return got, context.Cause(ctx)
	case c.gone():
		return got, context.Cause(c.life)
	}
	return got, err
}

// gone reports whether the connection has ended, and waits until the reason is known.
func (c *conn) gone() bool {
	select {
	case <-c.rpc.Done():
		<-c.life.Done()
		return true
	default:
		return c.life.Err() != nil
	}
}

func refusedWith(err error, code int) bool {
	var refused *acpwire.AnswerError
	return errors.As(err, &refused) && refused.Code == code
}

// open agrees on the version and opens a session: the given one if the agent can continue it, else a new one.
func (c *conn) open(ctx context.Context, session string) error {
	p := c.a.patience
	var err error
	c.init, err = call[initialized](ctx, c, p.initialize, acp.AgentMethodInitialize, map[string]any{
		"protocolVersion": acp.ProtocolVersionNumber,
		"clientInfo":      map[string]any{"name": "drover", "title": "Drover", "version": c.a.cfg.Version},
		"clientCapabilities": map[string]any{
			"fs":       map[string]any{"readTextFile": true, "writeTextFile": true},
			"terminal": true,
		},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", c.a.o.Args[0], err)
	}
	if v := c.init.ProtocolVersion; v != acp.ProtocolVersionNumber {
		return fmt.Errorf("it speaks version %d of the protocol, and Drover version %d", v, acp.ProtocolVersionNumber)
	}
	got, err := c.enter(ctx, session)
	if refusedWith(err, codeAuth) {
		return c.a.loginError(c.init.AuthMethods)
	}
	if err != nil {
		return err
	}
	if err := c.set(ctx, got, "model", c.a.o.Model); err != nil {
		return err
	}
	if err := c.set(ctx, got, "mode", c.a.o.Mode); err != nil {
		return err
	}
	return c.a.remember(ctx, c.session, c.session != session)
}

// enter opens the session.
func (c *conn) enter(ctx context.Context, session string) (opened, error) {
	params := map[string]any{"cwd": c.a.o.Dir, "mcpServers": []any{}}
	method := c.continues()
	if session != "" && method != "" {
		params["sessionId"] = session
		got, err := call[opened](ctx, c, c.a.patience.open, method, params) // updates meanwhile belong to no turn
		if err == nil {
			c.session = session
			return got, nil
		}
		if c.life.Err() != nil || ctx.Err() != nil || refusedWith(err, codeAuth) {
			return got, err
		}
		c.a.say("%s does not continue its session %.60q: %v", c.a.o.Name, session, err)
		delete(params, "sessionId")
	}
	got, err := call[opened](ctx, c, c.a.patience.open, acp.AgentMethodSessionNew, params)
	if err == nil && got.SessionID == "" {
		err = errors.New("it opened a session without an ID")
	}
	c.session = got.SessionID
	return got, err
}

// continues returns the method by which the agent continues a session; empty: it cannot.
func (c *conn) continues() string {
	switch {
	case has(c.init.Capabilities.Session.Resume):
		return acp.AgentMethodSessionResume
	case c.init.Capabilities.LoadSession:
		return acp.AgentMethodSessionLoad
	}
	return ""
}

// setting is a way to set the model or the mode of a session.
type setting struct {
	category, id string // one of them is model or mode
	method, key  string // the request, and its parameter for the choice
	choices      []choice
}

// settings returns the settings of a session: those with methods of their own, then the config options.
func (o opened) settings() (all []setting) {
	if o.Models != nil {
		all = append(all, setting{"model", "", acp.AgentMethodSessionSetModel, "modelId", o.Models.Available})
	}
	if o.Modes != nil {
		all = append(all, setting{"mode", "", acp.AgentMethodSessionSetMode, "modeId", o.Modes.Available})
	}
	for _, c := range o.Options {
		all = append(all, setting{c.Category, c.ID, acp.AgentMethodSessionSetConfigOption, "value", c.Options})
	}
	return all
}

// set sets the model or the mode, unless want is empty.
func (c *conn) set(ctx context.Context, got opened, category, want string) error {
	if want == "" {
		return nil
	}
	var known []string
	for _, s := range got.settings() {
		if s.category != category && s.id != category {
			continue
		}
		for _, one := range s.choices {
			id := cmp.Or(one.ModelID, one.Value, one.ID)
			if id != "" && (strings.EqualFold(id, want) || strings.EqualFold(one.Name, want)) {
				params := map[string]any{"sessionId": c.session, s.key: id}
				if s.id != "" {
					params["configId"] = s.id
				}
				_, err := call[struct{}](ctx, c, c.a.patience.open, s.method, params)
				return err
			}
			if id != "" && len(known) < 30 {
				known = append(known, id)
			}
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("its %s cannot be chosen (leave the %s out)", category, category)
	}
	slices.Sort(known)
	return fmt.Errorf("it has no %s %q (it has: %s)", category, want, strings.Join(slices.Compact(known), ", "))
}

// sendTime is how long an agent may take to read a message.
const sendTime = 30 * time.Second

// stdin is the input of an agent. An agent that does not read it loses the connection.
type stdin struct{ c *conn }

func (w stdin) Write(p []byte) (int, error) {
	c := w.c
	_ = c.pipes.In.SetWriteDeadline(time.Now().Add(sendTime)) // a pipe has deadlines
	if c.life.Err() != nil {                                  // after the deadline is set, so that close cannot miss it
		return 0, context.Cause(c.life)
	}
	n, err := c.pipes.In.Write(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.lost(fmt.Errorf("it has not read its stdin for %v", sendTime))
	case err != nil: // the process is probably about to end, and its exit is the better reason
		select {
		case <-c.life.Done():
		case <-time.After(2 * drainWait):
			c.lost(errors.New("it has closed its stdin"))
		}
	}
	return n, err
}

// tail keeps the end of the stderr of an agent.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if more := len(t.text) - tailBytes; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
