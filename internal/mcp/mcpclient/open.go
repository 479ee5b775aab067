package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// revision is the newest one with sessions. revisions are accepted from a server with
// sessions: they differ only in parts that this client does not use.
const revision = "2025-11-25"

func revisions() []string { return []string{revision, "2025-06-18", "2025-03-26", "2024-11-05"} }

// Bounds of the lists of a server.
const (
	maxTools      = 1000
	maxToolBytes  = 4 << 20
	maxPages      = 100
	relistPause   = time.Second // between two readings of the list
	maxToolName   = 256
	maxToolSchema = 256 << 10
)

// newConn makes a connection, before hello.
func newConn(ctx context.Context, name string, l limits) *Conn {
	c := &Conn{
		name:     name,
		cfg:      l,
		relist:   make(chan struct{}, 1),
		waiting:  map[int64]*call{},
		hear:     map[string][]*listener{},
		serve:    map[string][]*server{},
		incoming: map[string]context.CancelFunc{},
	}
	c.life, c.end = context.WithCancelCause(ctx)
	return c
}

// run keeps the connection until it ends, and returns when all of its goroutines have
// ended.
func (c *Conn) run() {
	err := c.wire.run(c.life)
	c.end(err)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.work.Wait()
}

// hello agrees on the revision and reads the tools. version is the version of this
// program. With sessions it asks only for a revision that has sessions.
func (c *Conn) hello(ctx context.Context, version string, sessions bool) error {
	if err := c.agree(ctx, version, sessions); err != nil {
		return err
	}
	hears := c.wire.agreed(c.revision)
	if c.Stateless() {
		c.overhear()
	} else if err := c.Notify(ctx, "notifications/initialized", nil); err != nil {
		return err
	}
	if c.Offers("tools") {
		tools, err := c.list(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.tools = tools
		c.mu.Unlock()
		c.spawn(c.follow)
	}
	return c.audible(ctx, hears)
}

// hearWait bounds the wait for the stream of notifications to begin. Messages that a server
// sends before it are lost; some servers begin the stream only with the first
// notification, hence the bound.
const hearWait = 500 * time.Millisecond

// audible waits until messages that the server sends by itself can arrive.
func (c *Conn) audible(ctx context.Context, hears <-chan struct{}) error {
	if hears == nil {
		return nil
	}
	select {
	case <-hears:
	case <-time.After(min(hearWait, c.cfg.initialize)):
	case <-c.life.Done():
		return c.goneError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// agree asks the server for its newest revision. A server that has not answered after a
// moment may be older and not know the request, or be about to start: it gets the
// request that begins a session too. The answer to that request counts, unless it is
// an error.
func (c *Conn) agree(ctx context.Context, version string, sessions bool) error {
	info := map[string]string{"name": "drover", "title": "Drover", "version": version}
	if sessions {
		return c.initialize(ctx, info)
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	meta := map[string]any{metaRevision: stateless, metaClient: info, metaCapabilities: c.ownCapabilities()}
	found := c.discover(ctx, meta)
	wait := time.NewTimer(min(probeWait, c.cfg.initialize))
	defer wait.Stop()
	select {
	case d := <-found:
		if c.adopt(d, meta) {
			return nil
		}
		return c.initialize(ctx, info)
	case <-wait.C:
	}
	err := c.initialize(ctx, info)
	var rpc *RPCError
	if errors.As(err, &rpc) {
		wait.Reset(probeWait)
		select {
		case d := <-found: // servers answer in order
			if c.adopt(d, meta) {
				return nil
			}
		case <-wait.C:
		}
	}
	return err
}

// initialize begins a session.
func (c *Conn) initialize(ctx context.Context, info map[string]string) error {
	params := map[string]any{"protocolVersion": revision, "capabilities": c.ownCapabilities(), "clientInfo": info}
	raw, err := c.exchange(ctx, "initialize", params, CallOptions{Timeout: c.cfg.initialize}, nil)
	if err != nil {
		return err
	}
	var res struct {
		Revision     string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
		Info         struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return fmt.Errorf("the answer to initialize is not understood: %w", err)
	}
	if !slices.Contains(revisions(), res.Revision) {
		return fmt.Errorf("it speaks revision %.40q of the protocol, and %q is spoken here", res.Revision,
			append([]string{stateless}, revisions()...))
	}
	c.revision, c.capabilities, c.about = res.Revision, res.Capabilities, fmt.Sprintf("%.100s %.40s", res.Info.Name,
		res.Info.Version)
	return nil
}

// ownCapabilities returns the capabilities of this client. They are sent before
// the tools are listed, because some servers have tools only for clients with a capability.
func (c *Conn) ownCapabilities() map[string]any {
	none := struct{}{}
	can := map[string]any{"elicitation": map[string]any{"form": none, "url": none}}
	if len(c.roots) > 0 {
		can["roots"] = none
	}
	if c.samples {
		can["sampling"] = none
	}
	return can
}

// Offers reports whether the server has a capability, such as resources.
func (c *Conn) Offers(name string) bool {
	var have map[string]json.RawMessage
	return json.Unmarshal(c.capabilities, &have) == nil && have[name] != nil
}

// follow reads the tools again when the server says that they have changed.
func (c *Conn) follow() {
	pause := time.NewTimer(relistPause)
	defer pause.Stop()
	for {
		select {
		case <-c.relist:
		case <-c.life.Done():
			return
		}
		if tools, err := c.list(c.life); err == nil { // else the known ones stay
			c.mu.Lock()
			c.tools = tools
			c.mu.Unlock()
		}
		pause.Reset(relistPause)
		select {
		case <-pause.C:
		case <-c.life.Done():
			return
		}
	}
}

// list reads all pages of the list of tools.
func (c *Conn) list(ctx context.Context) ([]Tool, error) {
	ctx, done := context.WithTimeoutCause(ctx, c.cfg.list,
		fmt.Errorf("%w: tools/list took more than %v", ErrNoAnswer, c.cfg.list))
	defer done()
	var tools []Tool
	size, cursor := 0, ""
	for range maxPages {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		raw, err := c.CallOpt(ctx, "tools/list", params, CallOptions{Timeout: -1})
		if err != nil {
			return nil, err
		}
		if size += len(raw); size > maxToolBytes {
			return nil, fmt.Errorf("its tools take more than %d bytes to list", maxToolBytes)
		}
		page, next, err := readTools(raw)
		if err != nil {
			return nil, err
		}
		if c.Stateless() {
			page = slices.DeleteFunc(page, func(t Tool) bool { return !t.headersValid() })
		}
		if tools = append(tools, page...); len(tools) > maxTools {
			return nil, fmt.Errorf("it has more than %d tools", maxTools)
		}
		if cursor = next; cursor == "" {
			return unlike(tools), nil
		}
	}
	return nil, errors.New("its list of tools does not end")
}

// readTools reads one page. It skips tools without a name or with a schema that is not
// an object: they cannot be used.
func readTools(raw json.RawMessage) (tools []Tool, next string, err error) {
	var page struct {
		Tools []struct {
			Name        string          `json:"name"`
			Title       string          `json:"title"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema"`
			Annotations json.RawMessage `json:"annotations"`
			Execution   struct {
				TaskSupport string `json:"taskSupport"`
			} `json:"execution"`
		} `json:"tools"`
		Next string `json:"nextCursor"`
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		return nil, "", fmt.Errorf("its list of tools is not understood: %w", err)
	}
	for _, t := range page.Tools {
		schema := bytes.TrimSpace(t.InputSchema)
		if t.Name == "" || len(t.Name) > maxToolName || len(schema) > maxToolSchema || !bytes.HasPrefix(schema, []byte("{")) {
			continue
		}
		support := t.Execution.TaskSupport
		if support != TaskRequired && support != TaskOptional {
			support = TaskForbidden
		}
		tools = append(tools, Tool{t.Name, t.Title, t.Description, schema, t.Annotations, support})
	}
	return tools, page.Next, nil
}

// unlike keeps the first of tools with the same name.
func unlike(tools []Tool) []Tool {
	seen := map[string]bool{}
	return slices.DeleteFunc(tools, func(t Tool) bool {
		again := seen[t.Name]
		seen[t.Name] = true
		return again
	})
}
