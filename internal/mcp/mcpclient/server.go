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
	Stdio = "stdio" // a command that is spoken with by its stdin and stdout
	HTTP  = "http"  // streamable HTTP
	SSE   = "sse"   // the HTTP+SSE transport of 2024; its kind is HTTP
)

// Server says how a server is reached, and what of it is used. The keys are
// those of mcpServers in .mcp.json files; [Server.Check] must have accepted it.
type Server struct {
	Type string `json:"type,omitempty"` // stdio, http or sse; empty: by the other fields

	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"` // beside what every command gets
	Cwd     string            `json:"cwd,omitempty"` // empty: the pool's

	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`

	AllowedTools  []string `json:"allowedTools,omitempty"`  // the only ones that are shown; empty: all
	DisabledTools []string `json:"disabledTools,omitempty"` // that are not shown

	// Bounded says that its command starts within [Config.Bound]: it is a project's.
	Bounded bool `json:"-"`

	// Timeout is for each call, in milliseconds; 0: the pool's.
	TimeoutMS int64 `json:"timeout,omitempty"`
}

// Timeout is for each call; 0: the pool's.
func (s Server) Timeout() time.Duration { return time.Duration(s.TimeoutMS) * time.Millisecond }

// Kind is [Stdio] or [HTTP] of a server that was accepted.
func (s Server) Kind() string {
	if s.URL != "" {
		return HTTP
	}
	return Stdio
}

// Check says why a server cannot be used, and how to fix it.
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

// Key is the same for servers that one connection can serve, and tells nothing
// of their secrets. cwd is where commands begin that name no folder.
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

// Shows reports whether a tool of the server is to be used at all.
func (s Server) Shows(tool string) bool {
	return (len(s.AllowedTools) == 0 || slices.Contains(s.AllowedTools, tool)) && !slices.Contains(s.DisabledTools, tool)
}

// How a tool may be called as a task; see execution.taskSupport of 2025-11-25.
const (
	TaskRequired  = "required"
	TaskOptional  = "optional"
	TaskForbidden = "forbidden"
)

// Tool is what a server says of one of its tools. Nothing of it is to be trusted.
type Tool struct {
	Name        string
	Title       string
	Description string
	InputSchema json.RawMessage // a JSON object
	Annotations json.RawMessage // hints; nil: none
	TaskSupport string          // one of the three; absent means forbidden
}

// Digest changes when anything changes that a model is told of the tool.
func (t Tool) Digest() string {
	h := sha256.New()
	for _, part := range []string{t.Name, t.Description, string(t.InputSchema)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
