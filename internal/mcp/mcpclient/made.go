package mcpclient

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"time"
)

// Requests of a server that this client runs as tasks: revision 2025-11-25 lets both
// sides make tasks. Ours are questions only, as the capabilities say.

const (
	maxMade  = 64 // tasks that are remembered
	madePoll = time.Second
	madeTTL  = time.Hour
)

// made is a task that this client runs for a server.
type made struct {
	id      string
	created time.Time
	cancel  context.CancelFunc
	done    chan struct{} // closed when the next three are set
	status  string        // working before
	res     any
	err     error
	updated time.Time
}

// perform answers a request of the server, at once or by a task.
func (c *Conn) perform(ctx context.Context, method string, params json.RawMessage, functions []*server) (any, error) {
	var p struct {
		Task *struct{} `json:"task"`
		ID   string    `json:"taskId"`
	}
	_ = json.Unmarshal(params, &p) // the method below reports the mistake
	switch method {
	case "elicitation/create":
		if p.Task != nil {
			return c.make(method, params, functions)
		}
	case "tasks/list":
		return c.listMade(), nil
	case "tasks/get", "tasks/result", "tasks/cancel":
		t := c.findMade(p.ID)
		if t == nil {
			return nil, &RPCError{Code: CodeBadParams, Message: "there is no such task"}
		}
		return t.answer(ctx, method)
	}
	return c.serveOne(ctx, method, params, functions)
}

// make begins a task. It lives with the connection, and not with the request.
func (c *Conn) make(method string, params json.RawMessage, functions []*server) (any, error) {
	ctx, cancel := context.WithCancel(c.life)
	now := time.Now().UTC()
	t := &made{id: rand.Text(), created: now, updated: now, cancel: cancel, done: make(chan struct{})}
	if !c.keep(t) {
		cancel()
		return nil, &RPCError{Code: CodeInternal, Message: "too many tasks are at work"}
	}
	begun := c.spawn(func() {
		defer cancel()
		res, err := c.serveOne(ctx, method, params, functions)
		t.status, t.res, t.err = "completed", res, err
		switch {
		case ctx.Err() != nil:
			t.status = "cancelled"
		case err != nil:
			t.status = "failed"
		}
		t.updated = time.Now().UTC()
		close(t.done)
	})
	if !begun {
		cancel()
		return nil, ErrGone
	}
	return map[string]any{"task": t.show()}, nil
}

// keep remembers a task, in the place of the oldest that is over.
func (c *Conn) keep(t *made) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.made) >= maxMade {
		i := slices.IndexFunc(c.made, (*made).over)
		if i < 0 {
			return false
		}
		c.made = slices.Delete(slices.Clone(c.made), i, i+1)
	}
	c.made = append(c.made, t)
	return true
}

func (c *Conn) findMade(id string) *made {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.made {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (c *Conn) listMade() any {
	c.mu.Lock()
	all := slices.Clone(c.made)
	c.mu.Unlock()
	shown := make([]any, len(all))
	for i, t := range all {
		shown[i] = t.show()
	}
	return map[string]any{"tasks": shown}
}

func (t *made) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *made) show() map[string]any {
	status, updated := "working", t.created
	if t.over() {
		status, updated = t.status, t.updated
	}
	return map[string]any{
		"taskId":        t.id,
		"status":        status,
		"createdAt":     t.created.Format(time.RFC3339Nano),
		"lastUpdatedAt": updated.Format(time.RFC3339Nano),
		"ttl":           madeTTL.Milliseconds(),
		"pollInterval":  madePoll.Milliseconds(),
	}
}

// answer answers one of the methods about a task.
func (t *made) answer(ctx context.Context, method string) (any, error) {
	switch method {
	case "tasks/get":
		return t.show(), nil
	case "tasks/cancel":
		if t.over() {
			return nil, &RPCError{Code: CodeBadParams, Message: "the task is over"}
		}
		t.cancel()
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if method == "tasks/cancel" {
		return t.show(), nil
	}
	if t.err != nil {
		return nil, t.err
	}
	return related(t.res, t.id)
}

// related adds the ID of its task to a result.
func related(res any, id string) (any, error) {
	raw, err := json.Marshal(res)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields["_meta"] = map[string]any{"io.modelcontextprotocol/related-task": map[string]string{"taskId": id}}
	return fields, nil
}
