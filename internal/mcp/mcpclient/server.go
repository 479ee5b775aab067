package mcpclient

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The kinds of servers.
const (
	Stdio = "stdio" // a command that speaks by its stdin and stdout
	HTTP  = "http"  // streamable HTTP
	SSE   = "sse"   // the HTTP+SSE transport of 2024; its kind is HTTP
)

// Server says how to reach a server, and which of its tools are used. It has the keys
// of mcpServers in .mcp.json files; [Server.Check] must have accepted it.
type Server struct {
	Type string `json:"type,omitempty"` // stdio, http or sse; empty: by the other fields

	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"` // in addition to the pool's
	Cwd     string            `json:"cwd,omitempty"` // empty: the folder of the pool

	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`

	AllowedTools  []string `json:"allowedTools,omitempty"`  // the only ones that are shown; empty: all
	DisabledTools []string `json:"disabledTools,omitempty"` // that are not shown

	// Bounded says that its command starts within [Pool.Bound]: it is a project's.
	Bounded bool `json:"-"`

	// TimeoutMS bounds each call, in milliseconds; 0: the timeout of the pool.
	TimeoutMS int64 `json:"timeout,omitempty"`
}

// Timeout returns the bound of each call; 0: the timeout of the pool.
func (s Server) Timeout() time.Duration { return time.Duration(s.TimeoutMS) * time.Millisecond }

// Kind returns the transport of an accepted server: [Stdio] or [HTTP].
func (s Server) Kind() string {
	if s.URL != "" {
		return HTTP
	}
	return Stdio
}

// Check returns why a server cannot be used, and how to fix it.
func (s Server) Check() error {
	switch s.Type {
	case "", Stdio, "local", HTTP, "streamable-http", "streamableHttp", SSE:
	default:
		return fmt.Errorf("type %q is not known (use stdio, http or sse)", s.Type)
	}
	switch {
	case s.Command == "" && s.URL == "":
		return errors.New("it has neither a command nor a url")
	case s.Command != "" && s.URL != "":
		return errors.New("it has a command and a url (remove one)")
	case s.URL != "" && (s.Type == Stdio || s.Type == "local"),
		s.Command != "" && s.Type != "" && s.Type != Stdio && s.Type != "local":
		return fmt.Errorf("type %s does not go with what it has", s.Type)
	case s.TimeoutMS < 0:
		return errors.New("timeout is below 0")
	}
	if s.URL == "" {
		return nil
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("its url is no http or https address") // which is not shown: it may hold a secret
	}
	for name, value := range s.Headers {
		if strings.ContainsAny(name+value, "\r\n") || name == "" {
			return fmt.Errorf("header %q is not one line", name)
		}
	}
	return nil
}

// Key returns the same key for servers that one connection can serve. It reveals no
// secrets. cwd is the folder of commands that name none.
func (s Server) Key(cwd string) string {
	if s.Cwd == "" {
		s.Cwd = cwd
	}
	if s.Kind() == HTTP {
		s.Cwd = ""
	}
	if s.Type != SSE {
		s.Type = ""
	}
	s.AllowedTools, s.DisabledTools, s.TimeoutMS = nil, nil, 0
	data, err := json.Marshal(s) // maps are written in the order of their keys
	if err != nil {
		panic(err) // strings only
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Shows reports whether agents may use a tool of the server.
func (s Server) Shows(tool string) bool {
	return (len(s.AllowedTools) == 0 || slices.Contains(s.AllowedTools, tool)) && !slices.Contains(s.DisabledTools, tool)
}

// How a tool may be called as a task; see execution.taskSupport of 2025-11-25.
const (
	TaskRequired  = "required"
	TaskOptional  = "optional"
	TaskForbidden = "forbidden"
)

// Tool is a server's description of one of its tools. All of it is untrusted.
type Tool struct {
	Name        string
	Title       string
	Description string
	InputSchema json.RawMessage // a JSON object
	Annotations json.RawMessage // hints; nil: none
	TaskSupport string          // one of the three; absent means forbidden
}

// Digest returns a digest of the description that a model gets of the tool.
func (t Tool) Digest() string {
	h := sha256.New()
	for _, part := range []string{t.Name, t.Description, string(t.InputSchema)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
