package mcpclient

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Revision 2026-07-28 has no session: every request describes the client, a
// question of the server is in an answer, and notifications come on a request that
// stays open.

// stateless is the first revision without sessions. The facts come from its specification.
const stateless = "2026-07-28"

// Keys by which a request describes its client; see basic, _meta.
const (
	metaRevision     = "io.modelcontextprotocol/protocolVersion"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServer       = "io.modelcontextprotocol/serverInfo"
)

const (
	// probeWait is how long a server may take to answer server/discover before it also
	// gets initialize: older servers may not answer unknown requests.
	probeWait = 500 * time.Millisecond
	// maxRounds bounds how often a server may answer one call with questions.
	maxRounds = 10
	// busyRounds bounds how often a server may answer one call without a question or a result.
	busyRounds = 3
	busyPause  = 50 * time.Millisecond
)

// Stateless reports whether the server speaks revision 2026-07-28.
func (c *Conn) Stateless() bool { return c.revision == stateless }

// discovery is the answer to server/discover.
type discovery struct {
	raw json.RawMessage
	err error
}

// codeRevision is the error of a server that refuses the revision of a request; its data has the
// supported ones (2026-07-28, UnsupportedProtocolVersionError).
const codeRevision = -32022

// supports reports whether a refusal names the revision among those that the server supports.
func supports(err error) bool {
	var rpc *RPCError
	var data struct {
		Supported []string `json:"supported"`
	}
	return errors.As(err, &rpc) && rpc.Code == codeRevision && json.Unmarshal(rpc.Data, &data) == nil &&
		slices.Contains(data.Supported, stateless)
}

// discover asks which revisions the server speaks, and does not wait. It asks once more a server
// that refuses the revision and yet lists it as supported.
func (c *Conn) discover(ctx context.Context, meta map[string]any) <-chan discovery {
	found := make(chan discovery, 1)
	begun := c.spawn(func() {
		ask := func() (json.RawMessage, error) {
			return c.exchange(ctx, "server/discover", map[string]any{}, CallOptions{Timeout: c.cfg.initialize}, meta)
		}
		raw, err := ask()
		if supports(err) {
			raw, err = ask()
		}
		found <- discovery{raw, err}
	})
	if !begun {
		found <- discovery{err: c.goneError()}
	}
	return found
}

// adopt stores the answer to server/discover. It returns false for a server that speaks
// older revisions only.
func (c *Conn) adopt(d discovery, meta map[string]any) bool {
	var res struct {
		Revisions    []string                   `json:"supportedVersions"`
		Capabilities json.RawMessage            `json:"capabilities"`
		Meta         map[string]json.RawMessage `json:"_meta"`
	}
	if d.err != nil || json.Unmarshal(d.raw, &res) != nil || !slices.Contains(res.Revisions, stateless) {
		return false
	}
	var info struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	_ = json.Unmarshal(res.Meta[metaServer], &info) // its name is optional
	c.revision, c.capabilities, c.meta = stateless, res.Capabilities, meta
	c.about = strings.TrimSpace(fmt.Sprintf("%.100s %.40s", info.Name, info.Version))
	return true
}

// question is a request of the server that came in an answer.
type question struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// rounds makes a call that the server may answer with questions: it repeats the call
// with the answers, until the server returns a result.
func (c *Conn) rounds(ctx context.Context, method string, params any, o CallOptions) (json.RawMessage, error) {
	busy := 0
	for round := 0; ; round++ {
		raw, err := c.exchange(ctx, method, params, o, c.metaFor(method, o))
		if err != nil || !bytes.Contains(raw, []byte(`"input_required"`)) {
			return raw, err
		}
		var res struct {
			Type      string              `json:"resultType"`
			Questions map[string]question `json:"inputRequests"`
			State     json.RawMessage     `json:"requestState"`
		}
		if json.Unmarshal(raw, &res) != nil || res.Type != "input_required" {
			return raw, nil
		}
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s to MCP server %s: %s", method, c.name, fmt.Sprintf(format, args...))
		}
		if len(res.Questions) == 0 {
			busy++
		}
		switch {
		case round >= maxRounds:
			return nil, fail("it still asks after %d answers", maxRounds)
		case busy > busyRounds:
			return nil, fail("it is busy (try later)")
		case len(res.Questions) > inFlight:
			return nil, fail("it asks %d questions at the same time, more than %d", len(res.Questions), inFlight)
		case len(res.Questions) == 0:
			if err := c.pause(ctx, busyPause<<busy); err != nil {
				return nil, err
			}
		}
		answers, err := c.answers(ctx, res.Questions, o.Answer)
		if err != nil {
			return nil, fail("a question of the server could not be answered: %v", err)
		}
		if params, err = again(params, answers, res.State); err != nil {
			return nil, err
		}
	}
}

// pause waits while the connection and ctx last.
func (c *Conn) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.life.Done():
		return c.goneError()
	}
}

// again returns a request with the answers to the server's questions. The state of the
// server is sent back unchanged.
func again(params any, answers map[string]any, state json.RawMessage) (any, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	var old map[string]json.RawMessage
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, err
	}
	for name, value := range old {
		fields[name] = value
	}
	delete(fields, "requestState")
	fields["inputResponses"] = answers
	if len(state) > 0 {
		fields["requestState"] = state
	}
	return fields, nil
}

// answers puts questions, all at the same time, and waits for the answers.
func (c *Conn) answers(ctx context.Context, all map[string]question, own Answerer) (map[string]any, error) {
	var mu sync.Mutex
	var work sync.WaitGroup
	given, errs := map[string]any{}, []error(nil)
	for key, q := range all {
		work.Go(func() {
			res, err := c.answer(ctx, q, own)
			mu.Lock()
			defer mu.Unlock()
			given[key] = res
			errs = append(errs, err)
		})
	}
	work.Wait()
	return given, errors.Join(errs...)
}

func (c *Conn) answer(ctx context.Context, q question, own Answerer) (any, error) {
	if own != nil {
		if res, err := own(ctx, q.Method, q.Params); !errors.Is(err, ErrNotMine) {
			return res, err
		}
	}
	c.mu.Lock()
	functions := c.serve[q.Method]
	c.mu.Unlock()
	return c.serveOne(ctx, q.Method, q.Params, functions)
}

// Subscribe asks the server to report changes of a resource by
// notifications/resources/updated, until [Conn.Unsubscribe].
func (c *Conn) Subscribe(ctx context.Context, uri string) error {
	if !c.Stateless() {
		_, err := c.Call(ctx, "resources/subscribe", map[string]string{"uri": uri})
		return err
	}
	heard := make(chan struct{}, 1)
	defer c.Listen("notifications/subscriptions/acknowledged", func(params json.RawMessage) {
		var p struct {
			Notifications struct {
				Resources []string `json:"resourceSubscriptions"`
			} `json:"notifications"`
		}
		if json.Unmarshal(params, &p) == nil && slices.Contains(p.Notifications.Resources, uri) {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})()
	life, end := context.WithCancel(c.life)
	refused := make(chan error, 1)
	if !c.spawn(func() {
		changed := func() { c.told(message{Method: "notifications/resources/updated", Params: uriParams(uri)}) }
		refused <- c.listen(life, map[string]any{"resourceSubscriptions": []string{uri}}, changed)
	}) {
		end()
		return c.goneError()
	}
	limit := time.NewTimer(c.cfg.list)
	defer limit.Stop()
	var err error
	select {
	case <-heard:
		c.mu.Lock()
		defer c.mu.Unlock()
		if old := c.watched[uri]; old != nil {
			old()
		}
		if c.watched == nil {
			c.watched = map[string]context.CancelFunc{}
		}
		c.watched[uri] = end
		return nil
	case err = <-refused:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-limit.C:
		err = fmt.Errorf("subscriptions/listen to MCP server %s: %w: none within %v", c.name, ErrNoAnswer, c.cfg.list)
	}
	end()
	return err
}

func uriParams(uri string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil {
		panic(err) // a string
	}
	return raw
}

// Unsubscribe ends a subscription of [Conn.Subscribe].
func (c *Conn) Unsubscribe(ctx context.Context, uri string) error {
	if !c.Stateless() {
		_, err := c.Call(ctx, "resources/unsubscribe", map[string]string{"uri": uri})
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := c.watched[uri]; end != nil {
		end()
		delete(c.watched, uri)
	}
	return nil
}

// listen keeps a request open on which the server sends notifications. After a break it
// makes the request again, and calls missed. It returns when ctx ends, or with the
// refusal of the server.
func (c *Conn) listen(ctx context.Context, notifications map[string]any, missed func()) error {
	params := map[string]any{"notifications": notifications}
	for tries := 0; ; tries++ {
		begun := time.Now()
		_, err := c.exchange(ctx, "subscriptions/listen", params, CallOptions{Timeout: -1}, c.meta)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var rpc *RPCError
		if errors.As(err, &rpc) {
			return err
		}
		if time.Since(begun) >= wellBehaved {
			tries = 0
		}
		if tries >= takeUps {
			return fmt.Errorf("MCP server %s ends its notifications again and again: %w", c.name, errors.Join(err, ErrGone))
		}
		if err := c.pause(ctx, takeUpWait<<tries); err != nil {
			return err
		}
		missed()
	}
}

// overhear subscribes to changes of the lists, if the server reports them.
func (c *Conn) overhear() {
	var have struct {
		Tools, Prompts, Resources struct {
			ListChanged bool `json:"listChanged"`
		}
	}
	if json.Unmarshal(c.capabilities, &have) != nil {
		return
	}
	want := map[string]any{}
	for name, tells := range map[string]bool{"toolsListChanged": have.Tools.ListChanged,
		"promptsListChanged": have.Prompts.ListChanged, "resourcesListChanged": have.Resources.ListChanged} {
		if tells {
			want[name] = true
		}
	}
	if len(want) == 0 {
		return
	}
	c.spawn(func() {
		_ = c.listen(c.life, want, func() { // the lists of a server that refuses stay as they are
			select {
			case c.relist <- struct{}{}:
			default:
			}
		})
	})
}

// httpHeaders returns the headers that repeat parts of a request's body; see transports,
// streamable HTTP. Params are the encoded parameters.
func (c *Conn) httpHeaders(method string, params json.RawMessage) map[string]string {
	out := map[string]string{"MCP-Protocol-Version": stateless, "Mcp-Method": method}
	var p struct {
		Name string                     `json:"name"`
		URI  string                     `json:"uri"`
		Task string                     `json:"taskId"`
		Args map[string]json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(params, &p) != nil {
		return out
	}
	switch {
	case method == "tools/call" || method == "prompts/get":
		out["Mcp-Name"] = headerValue(p.Name)
	case method == "resources/read":
		out["Mcp-Name"] = headerValue(p.URI)
	case strings.HasPrefix(method, "tasks/"):
		out["Mcp-Name"] = headerValue(p.Task)
	}
	if method != "tools/call" {
		return out
	}
	for _, t := range c.Tools() {
		if t.Name == p.Name {
			maps.Copy(out, t.argumentHeaders(p.Args))
		}
	}
	return out
}

// headerProperty is the schema of a property that is sent in a header too.
type headerProperty struct {
	Type       string                    `json:"type"`
	Header     json.RawMessage           `json:"x-mcp-header"`
	Properties map[string]headerProperty `json:"properties"`
}

// walk calls f for each property with a header, with the path that leads to it.
func (h headerProperty) walk(path []string, f func(path []string, p headerProperty)) {
	for name, p := range h.Properties {
		at := append(slices.Clone(path), name)
		if p.Header != nil {
			f(at, p)
		}
		p.walk(at, f)
	}
}

// argumentHeaders are the arguments that the schema wants in headers.
func (t Tool) argumentHeaders(args map[string]json.RawMessage) map[string]string {
	if !bytes.Contains(t.InputSchema, []byte("x-mcp-header")) {
		return nil
	}
	var schema headerProperty
	if json.Unmarshal(t.InputSchema, &schema) != nil {
		return nil
	}
	out := map[string]string{}
	schema.walk(nil, func(path []string, p headerProperty) {
		at := args
		for _, name := range path[:len(path)-1] {
			var next map[string]json.RawMessage
			_ = json.Unmarshal(at[name], &next) // a missing property is not sent
			at = next
		}
		var name string
		if text, ok := headerText(at[path[len(path)-1]]); ok && json.Unmarshal(p.Header, &name) == nil {
			out["Mcp-Param-"+name] = headerValue(text)
		}
	})
	return out
}

// headersValid reports whether a tool can be called over HTTP: each header of its
// schema has a name that HTTP allows and no other property has, and a value of one line.
func (t Tool) headersValid() bool {
	var schema headerProperty
	if !bytes.Contains(t.InputSchema, []byte("x-mcp-header")) {
		return true
	}
	if json.Unmarshal(t.InputSchema, &schema) != nil {
		return false
	}
	valid, seen := true, map[string]bool{}
	schema.walk(nil, func(_ []string, p headerProperty) {
		var name string
		plain := json.Unmarshal(p.Header, &name) == nil && name != "" && !strings.ContainsFunc(name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
				strings.ContainsRune("!#$%&'*+-.^_`|~", r))
		})
		typed := p.Type == "string" || p.Type == "integer" || p.Type == "boolean"
		valid = valid && plain && typed && !seen[strings.ToLower(name)]
		seen[strings.ToLower(name)] = true
	})
	return valid
}

// headerText returns a value in the form of a header; ok is false for a value without such a form.
func headerText(raw json.RawMessage) (text string, ok bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), true
		}
	}
	return "", false
}

// headerValue is a text as the value of a header, in base64 if it needs that. An empty one does:
// servers take a header without a value for a missing one.
func headerValue(text string) string {
	const before, after = "=?base64?", "?="
	odd := text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) ||
		text != strings.Trim(text, " \t") || strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
	if !odd {
		return text
	}
	return before + base64.StdEncoding.EncodeToString([]byte(text)) + after
}
