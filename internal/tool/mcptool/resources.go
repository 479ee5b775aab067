package mcptool

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// The names of the tools for resources.
const (
	ListName = "ListMcpResources"
	ReadName = "ReadMcpResource"
)

// Listed is a server's entry for one of its resources, or, with a template, for many.
type Listed struct {
	Server, URI, Template, Name, Title, Description, MimeType string
}

// ResourceConfig is what the tools for resources are made of.
type ResourceConfig struct {
	// List gives the resources of a server; of all for an empty name.
	List func(ctx context.Context, server string) ([]Listed, error)
	// Read gives the result of resources/read.
	Read func(ctx context.Context, server, uri string) (json.RawMessage, error)
	// Limit is how many characters of a result a model is shown.
	Limit int
	// Spill keeps the omitted rest, and returns its path. nil: it is lost.
	Spill func(id, text string) (path string, err error)
	// Save keeps a file, and says where. nil: it is lost.
	Save func(id, mime string, data []byte) (path string, err error)
}

type listInput struct {
	Server string `json:"server,omitempty" jsonschema:"Name of one server (default: all)"`
}

type readInput struct {
	Server string `json:"server" jsonschema:"Name of the server, as in mcp__SERVER__TOOL" input:"filled"`
	URI    string `json:"uri" jsonschema:"URI of the resource" input:"filled"`
}

// Resources makes the two tools for resources.
func Resources(c ResourceConfig) []agent.Tool {
	return []agent.Tool{
		toolkit.New(toolkit.Tool[listInput]{
			Name: ListName,
			Description: "Lists the resources that MCP servers offer: files, records and other data, each with the server and the " +
				"URI by which ReadMcpResource reads it. A URI template has {placeholders} to be replaced.",
			Aliases:  []string{ListName + "Tool"},
			Parallel: true, ReadOnly: true, // it tells what servers say of themselves
			Call: c.list,
		}),
		toolkit.New(toolkit.Tool[readInput]{
			Name: ReadName,
			Description: "Reads a resource of an MCP server, by its URI: one that ListMcpResources lists, or one that a result of a " +
				"tool of the server links to. A resource that is not text is saved to a file, whose path is the result.",
			Aliases: []string{ReadName + "Tool"}, Parallel: true, Call: c.read,
		}),
	}
}

func (cfg ResourceConfig) list(ctx context.Context, c agent.Call, in listInput) (agent.Output, error) {
	all, err := cfg.List(ctx, in.Server)
	if err != nil {
		return failed(ctx, err)
	}
	var b strings.Builder
	for _, r := range all {
		uri := r.URI
		if r.Template != "" {
			uri = r.Template + " (template)"
		}
		fmt.Fprintf(&b, "server %s: %s", shownName(r.Server), shownName(uri))
		for _, word := range []string{cmp.Or(r.Title, r.Name), r.MimeType, r.Description} {
			if word != "" {
				fmt.Fprintf(&b, " - %s", excerpt.Line(excerpt.Visible(word), 300))
			}
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return agent.Output{Text: "No MCP server offers resources."}, nil
	}
	return agent.Output{Text: cut(b.String(), c.ID, cfg.Limit, cfg.Spill)}, nil
}

func shownName(text string) string { return excerpt.Line(excerpt.Visible(text), 2000) }

func (cfg ResourceConfig) read(ctx context.Context, c agent.Call, in readInput) (agent.Output, error) {
	raw, err := cfg.Read(ctx, in.Server, in.URI)
	if err != nil {
		return failed(ctx, err)
	}
	var res struct {
		Contents []struct {
			URI      string  `json:"uri"`
			MimeType string  `json:"mimeType"`
			Text     *string `json:"text"`
			Blob     string  `json:"blob"`
		} `json:"contents"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return agent.Refuse("The server answered with something that is no resource: " + excerpt.Line(string(raw), 500)), nil
	}
	var parts []string
	for i, one := range res.Contents {
		switch {
		case i == maxParts:
			parts = append(parts, fmt.Sprintf("[%d more parts are not shown]", len(res.Contents)-i))
		case i > maxParts:
		case one.Text != nil && len(res.Contents) == 1:
			parts = append(parts, *one.Text)
		case one.Text != nil:
			parts = append(parts, fmt.Sprintf("[resource %s]\n%s", one.URI, *one.Text))
		default:
			parts = append(parts, cfg.kept(fmt.Sprintf("%s-%d", c.ID, i), one.URI, one.MimeType, one.Blob))
		}
	}
	text := excerpt.Plain(strings.Join(parts, "\n\n"))
	if strings.TrimSpace(text) == "" {
		text = "(the resource is empty)"
	}
	return agent.Output{Text: cut(text, c.ID, cfg.Limit, cfg.Spill)}, nil
}

// kept saves binary content.
func (cfg ResourceConfig) kept(id, uri, mime, blob string) string {
	data, err := base64.StdEncoding.DecodeString(blob)
	if err != nil {
		return fmt.Sprintf("[resource %s: its data is damaged]", uri)
	}
	where := "not kept"
	if cfg.Save != nil {
		path, err := cfg.Save(id, mime, data)
		if err != nil {
			return fmt.Sprintf("[resource %s, %s, %d bytes: not kept: %v]", uri, first(mime, "of unknown type"), len(data), err)
		}
		where = "saved to " + path
	}
	return fmt.Sprintf("[resource %s, %s, %d bytes: %s]", uri, first(mime, "of unknown type"), len(data), where)
}

// failed tells the model what went wrong with a server.
func failed(ctx context.Context, err error) (agent.Output, error) {
	var refusal *toolkit.Refusal
	switch {
	case ctx.Err() != nil:
		return agent.Output{}, context.Cause(ctx)
	case errors.As(err, &refusal):
		return agent.Refuse(refusal.Text), nil
	}
	return agent.Refuse("The call failed: " + excerpt.Line(err.Error(), 2000)), nil
}

// PromptText makes one text of the result of prompts/get.
func PromptText(raw json.RawMessage) (string, error) {
	var res struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return "", fmt.Errorf("read the prompt of the server: %w", err)
	}
	var parts []string
	for _, m := range res.Messages {
		text := excerpt.Plain(shown(m.Content))
		if m.Role == "assistant" {
			text = "[assistant]\n" + text
		}
		parts = append(parts, text)
	}
	text := strings.TrimSpace(strings.Join(parts, "\n\n"))
	if text == "" {
		return "", errors.New("the server gave an empty prompt")
	}
	return text, nil
}
