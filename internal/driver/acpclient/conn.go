package acpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// drainWait is how long is read what a process has printed before its end.
const drainWait = 200 * time.Millisecond

// conn is one process of an agent with the connection to it.
type conn struct {
	a    *Agent
	task task.ID
	g    *process.Group

	pipes     process.Streams
	rpc       *acp.Connection
	lines     *lines
	said      tail
	life      context.Context // ends with the process or its stdout
	lost      context.CancelCauseFunc
	flows     sync.WaitGroup // the reader of stderr, and who waits for the end of the process
	gate      sync.Mutex
	shut      bool           // nothing is served any more; guarded by gate
	serving   sync.WaitGroup // requests of the agent; added to under gate
	once      sync.Once      // of close
	waited    chan struct{}  // closed when nobody waits for the process any more
	terminals terminals
	headless  *translated // nil: the program speaks ACP

	init    initialized
	session string // set before the first turn

	turn atomic.Pointer[turn] // that is under way; nil: none
}

// launch starts the program. The connection is that of the agent from here on.
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

// connect begins to read.
func (c *conn) connect() {
	var from io.Reader = c.pipes.Out
	var to io.Writer = stdin{c}
	if c.headless != nil {
		from, to = c.headless.client, c.headless
	}
	refuse := func(id json.RawMessage) {
		answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id,
			"error": acp.NewInternalError(map[string]any{"error": "too many requests at once"})})
		if err == nil {
			_, _ = to.Write(append(answer, '\n'))
		}
	}
	junk := func(line []byte, size int) {
		c.a.say("%s printed %d bytes that are no message: %.200q", c.a.o.Name, size, line)
	}
	c.lines = newLines(from, refuse, junk)
	c.rpc = acp.NewConnection(c.handle, to, c.lines)
	c.rpc.SetLogger(slog.New(slog.DiscardHandler))
	c.waited = make(chan struct{})
	close(c.lines.ready)         // the library reads its logger without a lock
	heard := make(chan struct{}) // closed when stderr has ended
	c.flows.Go(func() {
		defer close(heard)
		_, _ = io.Copy(&c.said, c.pipes.Err)
	})
	c.flows.Go(func() { c.follow(heard) })
	if c.headless != nil {
		c.flows.Go(func() { c.headless.read(c.pipes.Out) })
	}
}

// follow ends the life of the connection with the process, or with its stdout.
func (c *conn) follow(heard <-chan struct{}) {
	ended, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := context.AfterFunc(c.life, cancel)
	defer stop()
	silent := make(chan struct{})
	c.flows.Go(func() {
		defer close(silent)
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
	deadline := time.Now().Add(drainWait) // what it has said before its end counts, unless somebody else holds the pipe
	_ = c.pipes.Out.SetReadDeadline(deadline)
	_ = c.pipes.Err.SetReadDeadline(deadline)
	<-silent
	<-heard
	what := fmt.Sprintf("its process ended with exit code %d", exit.Code)
	switch {
	case c.lines.why() != nil && !errors.Is(c.lines.why(), os.ErrDeadlineExceeded):
		what = c.lines.why().Error()
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

// lastWords is the last line that the process has printed on stderr.
func (c *conn) lastWords() string {
	all := strings.Split(strings.TrimSpace(c.said.String()), "\n")
	text := strings.TrimSpace(all[len(all)-1])
	return strings.ToValidUTF8(text[:min(len(text), 300)], "")
}

// close ends the process and all that it has started, and returns when that is done. leave is how
// long it may take to go by itself.
func (c *conn) close(ctx context.Context, leave, grace time.Duration) {
	c.once.Do(func() {
		c.terminals.stop()
		_ = c.pipes.In.SetWriteDeadline(time.Unix(1, 0)) // frees who writes
		_ = c.pipes.In.Close()
		if leave > 0 {
			moment, done := context.WithTimeout(context.Background(), leave)
			select {
			case <-c.life.Done(): // the process has ended, or nobody reads it
			case <-moment.Done():
			}
			done()
		}
		c.lost(errors.New("it was ended"))
		<-c.waited
		c.a.note(c.task, c.g.End(context.WithoutCancel(ctx),
			process.Ending{Grace: grace, Mark: string(c.task), Table: c.a.cfg.Table}))
		c.lines.close(nil)
		if c.headless != nil {
			c.headless.close()
		}
		deadline := time.Now().Add(drainWait)
		_ = c.pipes.Out.SetReadDeadline(deadline)
		_ = c.pipes.Err.SetReadDeadline(deadline)
		c.flows.Wait()
		c.gate.Lock()
		c.shut = true
		c.gate.Unlock()
		c.serving.Wait()
		c.terminals.wait()
		c.pipes.Close()
		if k := c.a.cfg.Keeper; k != nil {
			_ = k.Forget(c.g.Identity()) // one that is gone has forgotten already
		}
		c.g.Reap()
		c.g.Close()
	})
}

// bye closes the session at an agent that wants to be told.
func (c *conn) bye(ctx context.Context) {
	if !has(c.init.Capabilities.Session.Close) || c.life.Err() != nil || c.session == "" {
		return
	}
	_, _ = call[struct{}](ctx, c, c.a.patience.leave, acp.AgentMethodSessionClose,
		map[string]any{"sessionId": c.session}) // it is ended in any case
}

// call sends a request and waits for the answer, at most for a time.
func call[T any](ctx context.Context, c *conn, limit time.Duration, method string, params any) (T, error) {
	ctx, done := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer to %s within %v", method, limit))
	defer done()
	got, err := acp.SendRequest[T](c.rpc, ctx, method, params)
	c.lines.taken()
	switch {
	case err == nil:
		return got, nil
	case ctx.Err() != nil:
		return got, context.Cause(ctx)
	case c.gone():
		return got, context.Cause(c.life)
	}
	return got, plain(method, err)
}

// gone reports whether the connection has ended, and waits until it is known why.
func (c *conn) gone() bool {
	select {
	case <-c.rpc.Done():
		<-c.life.Done()
		return true
	default:
		return c.life.Err() != nil
	}
}

// plain is the error of an agent in one line.
func plain(method string, err error) error {
	var refused *acp.RequestError
	if !errors.As(err, &refused) {
		return fmt.Errorf("%s: %w", method, err)
	}
	text := refused.Message
	if refused.Data != nil {
		if more, err := json.Marshal(refused.Data); err == nil && string(more) != "{}" {
			text += " " + string(more[:min(len(more), 300)])
		}
	}
	return &answeredError{method: method, code: refused.Code, text: strings.Join(strings.Fields(text), " ")}
}

// answeredError is an error that the agent has answered with.
type answeredError struct {
	method string
	code   int
	text   string
}

func (e *answeredError) Error() string {
	return fmt.Sprintf("%s was refused: %.500s (code %d)", e.method, e.text, e.code)
}

func refusedWith(err error, code int) bool {
	var refused *answeredError
	return errors.As(err, &refused) && refused.code == code
}

// open agrees on the version and opens a session: the given one, if the agent can continue it.
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
	if err := c.choose(ctx, got); err != nil {
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
		got, err := call[opened](ctx, c, c.a.patience.open, method, params) // what it sends meanwhile is of no turn
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

// continues is the method by which the agent continues a session; empty: it cannot.
func (c *conn) continues() string {
	switch {
	case has(c.init.Capabilities.Session.Resume):
		return acp.AgentMethodSessionResume
	case c.init.Capabilities.LoadSession:
		return acp.AgentMethodSessionLoad
	}
	return ""
}

// choose sets the model and the mode that are wanted.
func (c *conn) choose(ctx context.Context, got opened) error {
	if want := c.a.o.Model; want != "" {
		var of []choice
		if got.Models != nil {
			of = got.Models.Available
		}
		if err := c.set(ctx, got, "model", want, acp.AgentMethodSessionSetModel, "modelId", of); err != nil {
			return err
		}
	}
	if want := c.a.o.Mode; want != "" {
		var of []choice
		if got.Modes != nil {
			of = got.Modes.Available
		}
		return c.set(ctx, got, "mode", want, acp.AgentMethodSessionSetMode, "modeId", of)
	}
	return nil
}

// set chooses one of some by a method of its own, or else by a config option.
func (c *conn) set(ctx context.Context, got opened, category, want, method, key string, of []choice) error {
	if id := find(of, want); id != "" {
		_, err := call[struct{}](ctx, c, c.a.patience.open, method, map[string]any{"sessionId": c.session, key: id})
		return err
	}
	return c.option(ctx, got, category, want, names(got, category))
}

// option sets a config option of a category.
func (c *conn) option(ctx context.Context, got opened, category, want string, known []string) error {
	for _, o := range got.Options {
		if o.Category != category && o.ID != category {
			continue
		}
		if value := find(o.Options, want); value != "" {
			_, err := call[struct{}](ctx, c, c.a.patience.open, acp.AgentMethodSessionSetConfigOption,
				map[string]any{"sessionId": c.session, "configId": o.ID, "value": value})
			return err
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("it lets nobody choose its %s (leave the %s out)", category, category)
	}
	return fmt.Errorf("it has no %s %q (it has: %s)", category, want, strings.Join(known, ", "))
}

func (c choice) id() string {
	for _, id := range []string{c.ModelID, c.Value, c.ID} {
		if id != "" {
			return id
		}
	}
	return ""
}

// find is the ID of a choice by its ID or name.
func find(of []choice, want string) string {
	for _, c := range of {
		if strings.EqualFold(c.id(), want) || strings.EqualFold(c.Name, want) {
			return c.id()
		}
	}
	return ""
}

// names are the choices of a category.
func names(got opened, category string) (out []string) {
	add := func(of []choice) {
		for _, c := range of {
			if len(out) < 30 && c.id() != "" {
				out = append(out, c.id())
			}
		}
	}
	if category == "model" && got.Models != nil {
		add(got.Models.Available)
	}
	if category == "mode" && got.Modes != nil {
		add(got.Modes.Available)
	}
	for _, o := range got.Options {
		if o.Category == category || o.ID == category {
			add(o.Options)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
