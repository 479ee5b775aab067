package conformance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
)

// memory holds the tasks of the fixture.
type memory struct {
	work sync.WaitGroup
	life context.Context

	mu    sync.Mutex
	tasks map[string]*job
}

type job struct {
	mcpwire.Task
	cancel  context.CancelFunc
	answers map[string]any
	changed chan struct{} // closed and replaced
}

func newHolder(t *testing.T) *memory {
	life, end := context.WithCancel(context.Background())
	m := &memory{life: life, tasks: map[string]*job{}}
	t.Cleanup(func() {
		end()
		m.work.Wait()
	})
	return m
}

// start makes the call a task that ends as do says, or answers with it where the client does
// not want a task.
func (m *memory) start(ctx context.Context, do func(context.Context, *job) (*mcp.CallToolResult, *jsonrpc.Error)) (*mcp.CallToolResult, error) {
	w := mcpwire.WishOf(ctx)
	now := time.Now()
	life, cancel := context.WithCancel(m.life)
	j := &job{cancel: cancel, answers: map[string]any{}, changed: make(chan struct{})}
	j.Task = mcpwire.Task{ID: rand.Text(), Status: mcpwire.Working, Created: now, Updated: now, TTL: time.Minute}
	if w == nil {
		defer cancel()
		res, failed := do(ctx, j)
		if failed != nil {
			return nil, failed
		}
		return res, nil
	}
	if w.TTL != nil {
		j.TTL = *w.TTL
	}
	m.mu.Lock()
	m.tasks[j.ID] = j
	w.Grant(j.Task)
	m.mu.Unlock()
	m.work.Go(func() {
		defer cancel()
		res, failed := do(life, j)
		m.change(j, func() {
			switch {
			case j.Status.Ended():
				return
			case failed != nil:
				j.Status, j.Error = mcpwire.Failed, failed
			case res.IsError:
				j.Status, j.Result = mcpwire.Failed, res
			default:
				j.Status, j.Result = mcpwire.Completed, res
			}
		})
	})
	return texts("started"), nil
}

func (m *memory) change(j *job, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	j.Updated = time.Now()
	close(j.changed)
	j.changed = make(chan struct{})
}

// ask waits for answers to all forms.
func (m *memory) ask(ctx context.Context, j *job, forms mcp.InputRequestMap) map[string]any {
	m.change(j, func() { j.Status, j.Inputs = mcpwire.InputRequired, maps.Clone(forms) })
	for {
		m.mu.Lock()
		open, answers, changed := len(j.Inputs), maps.Clone(j.answers), j.changed
		m.mu.Unlock()
		if open == 0 {
			return answers
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *memory) tools(s *mcp.Server) {
	tool(s, "greet", anyObject, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct{ Name string }
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		return texts("Hello, %s!", in.Name), nil
	})
	tool(s, "slow_compute", anyObject, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct {
			Seconds float64
			Label   string
		}
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		return m.start(ctx, func(ctx context.Context, _ *job) (*mcp.CallToolResult, *jsonrpc.Error) {
			timer := time.NewTimer(time.Duration(in.Seconds * float64(time.Second)))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			return texts("computed %s", in.Label), nil
		})
	})
	tool(s, "failing_job", anyObject, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return m.start(ctx, func(context.Context, *job) (*mcp.CallToolResult, *jsonrpc.Error) {
			return &mcp.CallToolResult{Content: []mcp.Content{text("the job failed")}, IsError: true}, nil
		})
	})
	tool(s, "protocol_error_job", anyObject, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return m.start(ctx, func(context.Context, *job) (*mcp.CallToolResult, *jsonrpc.Error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke"}
		})
	})
	asking := func(name string, forms mcp.InputRequestMap) {
		tool(s, name, anyObject, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return m.start(ctx, func(ctx context.Context, j *job) (*mcp.CallToolResult, *jsonrpc.Error) {
				return texts("answered %v", m.ask(ctx, j, forms)), nil
			})
		})
	}
	asking("confirm_delete", mcp.InputRequestMap{"confirm": form("confirm", "boolean")})
	asking("multi_input", mcp.InputRequestMap{"name": form("name", "string"), "color": form("color", "string")})
	tool(s, "test_tool_with_task", anyObject, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		name, ok := accepted(r.Params.InputResponses, "user_name", "name")
		if !ok {
			return needs("", mcp.InputRequestMap{"user_name": form("name", "string")}), nil
		}
		return m.start(ctx, func(context.Context, *job) (*mcp.CallToolResult, *jsonrpc.Error) {
			return texts("Hello, %v!", name), nil
		})
	})
}

func (m *memory) Get(_ context.Context, id string) (mcpwire.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.tasks[id]
	if j == nil {
		return mcpwire.Task{}, mcpwire.ErrUnknown
	}
	t := j.Task
	t.Inputs = maps.Clone(j.Inputs)
	return t, nil
}

func (m *memory) Wait(ctx context.Context, _ *mcp.CallToolRequest, id string) (mcpwire.Task, error) {
	for {
		t, err := m.Get(ctx, id)
		if err != nil || t.Status.Ended() {
			return t, err
		}
		m.mu.Lock()
		changed := m.tasks[id].changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return t, ctx.Err()
		}
	}
}

func (m *memory) List(context.Context, string) ([]mcpwire.Task, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []mcpwire.Task
	for _, j := range m.tasks {
		all = append(all, j.Task)
	}
	return all, "", nil
}

func (m *memory) Answer(_ context.Context, id string, answers map[string]json.RawMessage) error {
	m.mu.Lock()
	j := m.tasks[id]
	m.mu.Unlock()
	if j == nil {
		return mcpwire.ErrUnknown
	}
	m.change(j, func() {
		for key, raw := range answers {
			if _, open := j.Inputs[key]; !open {
				continue
			}
			j.answers[key] = string(raw)
			delete(j.Inputs, key)
		}
		if len(j.Inputs) == 0 && j.Status == mcpwire.InputRequired {
			j.Status = mcpwire.Working
		}
	})
	return nil
}

func (m *memory) Cancel(_ context.Context, id string) error {
	m.mu.Lock()
	j := m.tasks[id]
	m.mu.Unlock()
	if j == nil {
		return mcpwire.ErrUnknown
	}
	m.change(j, func() { j.Status, j.Inputs = mcpwire.Cancelled, nil })
	j.cancel()
	return nil
}
