// Package mcpserver lets clients of the Model Context Protocol (MCP) run and watch tasks.
//
// It owns the tools of `drover mcp serve`, their schemas, and the lease under which they start tasks. It promises
// that tasks end with their client unless the client asked to keep them, that a cancelled call returns at once and
// stops only the task that it started in the foreground, that text of tasks is bounded and harmless, and that a
// permission question reaches the client's user while a call waits for its task, if the client shows forms. It does
// not keep tasks: they live in a session, to which it reconnects when that has ended. A client can hold a task by a
// handle of the protocol, which survives this process.
package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
	"github.com/drover-dev/drover/internal/platform/httpserve"
)

// Server is Drover as a server of the protocol. Connect and Cwd are required.
type Server struct {
	// Connect connects to the session, and starts one if needed. The first tool call calls it, and the next one after
	// the session has ended. release is called once, when the connection is no longer used.
	Connect func(ctx context.Context) (api control.API, release func(), err error)
	Cwd     string   // default folder of commands; absolute
	Env     []string // of commands
	Version string   // of this program
	Handles Handles  // without a folder, tasks of the protocol are not offered
}

// errGone is the cause of the contexts of a client that has left.
var errGone = errors.New("the client has gone")

const instructions = `Drover runs shell commands and agents as background tasks.
Start them with task_run and agent_run; both answer at once with a task_id unless background is false.
Then use task_wait to wait for ends, task_output to read what a task printed, task_list to see all, and task_stop to end tasks with everything they started.
Tasks are stopped when this connection ends, unless they were started with keep.`

// server is the state of one client. Its methods may be called by several goroutines.
type server struct {
	cfg   Server
	link  *control.Link
	lease string          // of the link
	life  context.Context // of the connection to the client
	end   context.CancelCauseFunc
	asked askedBook
}

func newServer(ctx context.Context, cfg Server) *server {
	life, end := context.WithCancelCause(ctx)
	lease := rand.Text()
	return &server{cfg: cfg, life: life, end: end, lease: lease, link: control.NewLink(life, cfg.Connect, lease)}
}

// close ends the calls of the client and gives up its lease.
func (s *server) close() {
	s.end(errGone)
	s.link.Close()
}

// service is shared by all clients of this process.
type service struct {
	cfg   Server
	life  context.Context
	mcp   *mcp.Server
	alone *server // for clients without a session: the one on stdio, and stateless ones over HTTP

	watching watching
	watches  sync.WaitGroup // one per session
	mu       sync.Mutex
	clients  map[string]*server // by the session
	closed   bool               // no client is added
}

func newService(ctx context.Context, cfg Server) (*service, error) {
	if cfg.Connect == nil || cfg.Cwd == "" {
		return nil, errors.New("serve mcp: Connect and Cwd must be set")
	}
	v := &service{cfg: cfg, life: ctx, alone: newServer(ctx, cfg), clients: map[string]*server{}}
	capabilities := &mcp.ServerCapabilities{Resources: &mcp.ResourceCapabilities{Subscribe: true}}
	if cfg.Handles.Dir != "" {
		capabilities.AddExtension(mcpwire.Extension, nil)
	}
	v.watching.outputs = map[string]*watched{}
	v.mcp = mcp.NewServer(&mcp.Implementation{Name: "drover", Title: "Drover", Version: cfg.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: capabilities, SubscribeHandler: v.subscribe, UnsubscribeHandler: v.unsubscribe,
	})
	v.addTools()
	v.addResources()
	v.mcp.AddReceivingMiddleware(filled)
	if cfg.Handles.Dir == "" {
		return v, nil
	}
	return v, mcpwire.Tasks{
		Holder: holder{v}, Poll: handlePoll,
		Support: map[string]mcpwire.Support{"task_run": mcpwire.Optional, "agent_run": mcpwire.Optional},
	}.Add(v.mcp)
}

// of returns the client of a session. It is closed when the session ends.
func (v *service) of(ss *mcp.ServerSession) *server {
	id := ss.ID()
	if id == "" {
		return v.alone
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.clients[id]; ok {
		return s
	}
	if v.closed {
		return v.alone // closed too
	}
	s := newServer(v.life, v.cfg)
	v.clients[id] = s
	v.watches.Go(func() {
		_ = ss.Wait() // the reason does not matter
		s.close()
		v.mu.Lock()
		delete(v.clients, id)
		v.mu.Unlock()
	})
	return s
}

// leave ends the calls of a session before the session ends: the protocol library waits for them, but does not cancel
// them.
func (v *service) leave(session string) {
	v.mu.Lock()
	s := v.clients[session]
	v.mu.Unlock()
	if s != nil {
		s.end(errGone)
	}
}

// close closes all clients and returns when their leases are given up.
func (v *service) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	mcpwire.CloseSessions(v.mcp)
	v.watches.Wait()
	v.alone.close()
	v.watching.works.Wait()
}

// Serve serves one client until it leaves, which is not an error, or ctx ends, whose cause it returns. Then the lease
// is given up and nothing of it runs in this process.
func (cfg Server) Serve(ctx context.Context, t mcp.Transport) error {
	v, err := newService(ctx, cfg)
	if err != nil {
		return err
	}
	err = v.mcp.Run(v.alone.life, t)
	v.close()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, left(err):
		return nil
	}
	return fmt.Errorf("serve mcp: %w", err)
}

// ServeHTTP serves all clients that reach l and have the token, until ctx ends, whose cause it returns. host is a
// name of l in requests, besides loopback addresses.
//
// Tasks of a client with a session end with the session, tasks of other clients with the server, unless they are kept.
func (cfg Server) ServeHTTP(ctx context.Context, l net.Listener, host, token string) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	v, err := newService(life, cfg)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	h := mcpwire.HTTP{Server: v.mcp, Host: host, Token: token, Left: v.leave}.Handler()
	err = httpserve.Serve(ctx, l, h, func() {
		end(errGone)
		mcpwire.CloseSessions(v.mcp)
	})
	v.close()
	if err != nil {
		return fmt.Errorf("serve mcp over http: %w", err)
	}
	return context.Cause(ctx)
}

// left reports whether err means that the client has left.
func left(err error) bool {
	for _, e := range [...]error{io.EOF, io.ErrClosedPipe, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// filled replaces null arguments, which some clients send, by an empty object. The library would panic when it fills in
// defaults.
func filled(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if call, ok := req.(*mcp.CallToolRequest); ok && call.Params != nil &&
			string(bytes.TrimSpace(call.Params.Arguments)) == "null" {
			call.Params.Arguments = []byte("{}")
		}
		return next(ctx, method, req)
	}
}

// add adds a tool. The context of a call also ends with the connection: the protocol library waits for calls, but
// does not cancel them.
func add[In, Out any](
	v *service,
	t *mcp.Tool,
	h func(*server, context.Context, *mcp.CallToolRequest, In) (string, Out, error),
) {
	t.OutputSchema = schemaOf[Out]()
	mcp.AddTool(v.mcp, t, func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		s := v.of(req.Session)
		ctx, cancel := s.during(ctx)
		defer cancel()
		text, out, err := h(s, ctx, req, in)
		var needed *inputNeeded
		if errors.As(err, &needed) {
			return needed.result(), out, nil
		}
		if err != nil {
			var none Out
			return nil, none, plainError(err)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, out, nil
	})
}

// during returns the context of a call, which also ends with the connection.
func (s *server) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(errGone) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
