// Package mcptool makes tools for a model of the tools of MCP servers: their
// names, their specifications, and the text of their results.
//
// Text of a server is shown and not trusted: invisible characters are made
// visible, and hints give no permission. The package calls no server itself.
package mcptool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// Prefix begins the names of all tools of servers; no tool of ours has it.
const Prefix = "mcp__"

const (
	maxName  = 64   // characters of the name of a tool, as providers want it
	maxPart  = 28   // of the name of a server in it
	maxAbout = 4000 // code points of a description
	digest   = 8    // characters that tell cut names apart
)

// Name is how a model calls a tool of a server.
func Name(server, tool string) string {
	name := Prefix + ServerName(server) + "__" + part(tool)
	if len(name) <= maxName {
		return name
	}
	return name[:maxName-digest-1] + "_" + sum(server+"\x00"+tool)
}

// ServerName returns the form of a server's name in the names of its tools and in rules.
func ServerName(server string) string {
	name := part(server)
	for strings.Contains(name, "__") {
		name = strings.ReplaceAll(name, "__", "_") // two would end the name of the server
	}
	if name = strings.Trim(name, "_"); name == "" {
		name = sum(server)
	}
	if len(name) > maxPart {
		name = name[:maxPart-digest-1] + "_" + sum(server)
	}
	return name
}

func part(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, text)
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])[:digest]
}

// Spec returns the specification of a tool for a model.
func Spec(server string, t mcpclient.Tool) agent.ToolSpec {
	about := []rune(excerpt.Visible(strings.TrimSpace(cmp.Or(t.Description, t.Title))))
	if len(about) > maxAbout {
		about = append(about[:maxAbout-1], '…')
	}
	return agent.ToolSpec{Name: Name(server, t.Name), Description: string(about), InputSchema: schema(t.InputSchema)}
}

// schema returns the server's schema, byte for byte, unless it has invisible
// characters: then these become visible in its descriptions.
func schema(raw json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree any
	if d.Decode(&tree) != nil || !reveal(tree) {
		return raw
	}
	out, err := json.Marshal(tree)
	if err != nil {
		return raw
	}
	return out
}

// reveal makes the words for people visible, and reports whether any were not.
func reveal(v any) bool {
	changed := false
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			changed = reveal(one) || changed
		}
	case map[string]any:
		for key, one := range v {
			text, is := one.(string)
			if !is || key != "description" && key != "title" && key != "$comment" {
				changed = reveal(one) || changed
				continue
			}
			if shown := excerpt.Visible(text); shown != text {
				v[key], changed = shown, true
			}
		}
	}
	return changed
}

// Config configures a tool.
type Config struct {
	Server string // as it is configured
	Tool   mcpclient.Tool
	// Call calls the tool. It returns the result of tools/call, or a text in its
	// place.
	Call func(ctx context.Context, c agent.Call) (result json.RawMessage, text string, err error)
	// Limit is how many characters of a result a model is shown.
	Limit int
	// Spill keeps a result that is longer, and says where. nil: it is lost.
	Spill func(callID, text string) (path string, err error)
}

type tool struct {
	spec     agent.ToolSpec
	parallel bool
	cfg      Config
}

// New makes a tool.
func New(c Config) agent.Tool {
	var hints struct {
		ReadOnly bool `json:"readOnlyHint"`
	}
	_ = json.Unmarshal(c.Tool.Annotations, &hints) // invalid annotations give no hint
	return &tool{Spec(c.Server, c.Tool), hints.ReadOnly, c}
}

// Spec implements [agent.Tool].
func (t *tool) Spec() agent.ToolSpec { return t.spec }

// Parallel implements [agent.Parallel]: that is all that the hint is good for.
func (t *tool) Parallel() bool { return t.parallel }

// Call implements [agent.Tool]. The model gets the errors of the server.
func (t *tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	raw, text, err := t.cfg.Call(ctx, c)
	var refusal *toolkit.Refusal
	switch {
	case err != nil && ctx.Err() != nil:
		return agent.Output{}, context.Cause(ctx)
	case errors.As(err, &refusal):
		return agent.Refuse(refusal.Text), nil
	case err != nil:
		return agent.Refuse("The call failed: " + excerpt.Line(err.Error(), 2000)), nil
	case raw == nil:
		return agent.Output{Text: text}, nil
	}
	text, failed := Render(raw)
	return agent.Output{Text: cut(text, c.ID, t.cfg.Limit, t.cfg.Spill), Images: imagesOf(raw),
		IsError: failed}, nil
}

// cut keeps a long result elsewhere, and gives the end of it.
func cut(text, id string, limit int, spill func(id, text string) (string, error)) string {
	limit = cmp.Or(limit, excerpt.DefaultLimit)
	if _, long := excerpt.Tail(text, limit, ""); !long {
		return text
	}
	where := "(it was not kept)"
	if spill != nil {
		if path, err := spill(id, text); err == nil {
			where = path
		}
	}
	return excerpt.End(text, limit, where)
}
