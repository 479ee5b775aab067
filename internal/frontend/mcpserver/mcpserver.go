// Package mcpserver lets a client of the Model Context Protocol run and watch
// tasks.
//
// It owns the tools of `drover mcp serve`, their schemas, and the lease under
// which they start tasks. It promises that what is started goes when the
// client goes, unless the client asked to keep it; that a call which the
// client takes back ends at once, and ends a task only if the task was started
// in the foreground by that call; and that text from tasks is bounded and
// harmless; and that what an agent asks leave for reaches the client's user while
// a call waits for that agent, if the client shows forms. It keeps no tasks itself: they live in the session that it is
// connected to, and it connects again when that has ended. It does not speak
// the protocol's own tasks.
package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
)

// Config is what a server needs. Connect and Cwd must be set.
type Config struct {
	// Connect reaches a session, starting one if there is none. It is called
	// by the first tool call, and again when the session has ended. release is
	// called once, when the connection is of no more use.
	Connect func(ctx context.Context) (api control.API, release func(), err error)
	Cwd     string   // absolute; where commands run that do not say
	Env     []string // of commands
	Version string   // of this program
}

// errGone is the cause of the end of what a client that left had under way.
var errGone = errors.New("the client has gone")

const instructions = `Drover runs shell commands and agents as background tasks.
Start them with task_run and agent_run; both answer at once with a task_id unless background is false.
Then use task_wait to wait for ends, task_output to read what a task printed, task_list to see all, and task_stop to end tasks with everything they started.
Tasks are stopped when this connection ends, unless they were started with keep.`

// server is one client's view. Its methods are called by several goroutines.
type server struct {
	cfg   Config
	link  *link
	life  context.Context // of the connection to the client
	asked askedBook
}

// Serve speaks with one client until it leaves, which is no error, or ctx
// ends, which gives the cause. When it returns, the lease is given up and
// nothing that it started is running in this process.
func Serve(ctx context.Context, cfg Config, t mcp.Transport) error {
	if cfg.Connect == nil || cfg.Cwd == "" {
		return errors.New("serve mcp: Connect and Cwd must be set")
	}
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &server{cfg: cfg, life: life, link: newLink(life, cfg.Connect, rand.Text())}
	impl := &mcp.Implementation{Name: "drover", Title: "Drover", Version: cfg.Version}
	m := mcp.NewServer(impl, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{}, // without it, logging is declared
	})
	s.addTools(m)
	m.AddReceivingMiddleware(filled)
	err := m.Run(life, t)
	end(errGone)
	s.link.close()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, left(err):
		return nil
	}
	return fmt.Errorf("serve mcp: %w", err)
}

// left reports whether err is what a client leaves behind that goes while it
// is being answered.
func left(err error) bool {
	for _, e := range [...]error{io.EOF, io.ErrClosedPipe, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// filled makes an empty object of arguments that are null, which some clients
// send for none. The library would fill defaults into it and panic.
func filled(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if call, ok := req.(*mcp.CallToolRequest); ok && call.Params != nil &&
			string(bytes.TrimSpace(call.Params.Arguments)) == "null" {
			call.Params.Arguments = []byte("{}")
		}
		return next(ctx, method, req)
	}
}

// add puts one tool up. The context of a call also ends with the connection:
// the protocol library waits for its calls, but does not end them.
func add[In, Out any](
	s *server,
	m *mcp.Server,
	t *mcp.Tool,
	h func(context.Context, *mcp.CallToolRequest, In) (string, Out, error),
) {
	t.OutputSchema = schemaOf[Out]()
	mcp.AddTool(m, t, func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.life, func() { cancel(errGone) })()
		text, out, err := h(ctx, req, in)
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
