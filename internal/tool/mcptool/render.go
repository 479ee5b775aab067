package mcptool

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/picture"
)

// maxParts is how many parts of a result are shown.
const maxParts = 1000

// result is the result of tools/call, in all revisions.
type result struct {
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structuredContent"`
	IsError    bool              `json:"isError"`
}

type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MimeType string `json:"mimeType"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Title    string `json:"title"`
	Resource *struct {
		URI      string `json:"uri"`
		MimeType string `json:"mimeType"`
		Text     string `json:"text"`
		Blob     string `json:"blob"`
	} `json:"resource"`
}

// Render makes the text of a result for a model, and says whether it tells of a
// failure of the tool. Nothing that a terminal would obey is left in it.
func Render(raw json.RawMessage) (text string, failed bool) {
	var res result
	if err := json.Unmarshal(raw, &res); err != nil {
		return "The server answered with something that is no result of a tool: " + excerpt.Line(string(raw), 500), true
	}
	var parts []string
	for i, one := range res.Content {
		if i == maxParts {
			parts = append(parts, fmt.Sprintf("[%d more parts are not shown]", len(res.Content)-i))
			break
		}
		parts = append(parts, shown(one))
	}
	if len(res.Content) == 0 && len(res.Structured) > 0 && string(res.Structured) != "null" {
		parts = append(parts, string(res.Structured)) // else the text says the same
	}
	text = excerpt.Plain(strings.Join(parts, "\n\n"))
	if strings.TrimSpace(text) == "" {
		text = "(no output)"
	}
	return text, res.IsError
}

// imagesOf are the images of a result that a model may be shown, as many as a prompt may have.
// The text names each of them, and the others.
func imagesOf(raw json.RawMessage) (images []agent.Block) {
	var res result
	if json.Unmarshal(raw, &res) != nil {
		return nil
	}
	total := 0
	for _, one := range res.Content[:min(len(res.Content), maxParts)] {
		var c content
		if json.Unmarshal(one, &c) != nil || c.Type != "image" {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(c.Data)
		if err != nil {
			continue
		}
		kind, err := picture.Check(data)
		if total += len(data); err != nil || total > picture.MaxTotal || len(images) == picture.Max {
			continue
		}
		images = append(images, agent.Block{Type: "image", Source: picture.Source(data, kind)})
	}
	return images
}

func shown(raw json.RawMessage) string {
	var c content
	if json.Unmarshal(raw, &c) != nil {
		return "[a part that is not understood]"
	}
	switch c.Type {
	case "text":
		return c.Text
	case "image":
		if data, err := base64.StdEncoding.DecodeString(c.Data); err == nil {
			if kind, err := picture.Check(data); err == nil {
				return fmt.Sprintf("[image, %s, %d bytes]", kind, len(data))
			}
		}
		return binary(c.Type, c.MimeType, c.Data)
	case "audio":
		return binary(c.Type, c.MimeType, c.Data)
	case "resource_link":
		return fmt.Sprintf("[resource %s: %s]", first(c.Title, c.Name), c.URI)
	case "resource":
		switch r := c.Resource; {
		case r == nil:
		case r.Blob != "":
			return fmt.Sprintf("[resource %s]\n%s", r.URI, binary("file", r.MimeType, r.Blob))
		default:
			return fmt.Sprintf("[resource %s]\n%s", r.URI, r.Text)
		}
	}
	return fmt.Sprintf("[a part of type %q is not shown]", c.Type)
}

// binary returns the placeholder of data that a model does not get.
func binary(what, mime, data string) string {
	mime = first(mime, "of unknown type")
	n, err := base64.StdEncoding.Decode(make([]byte, base64.StdEncoding.DecodedLen(len(data))), []byte(data))
	if err != nil {
		return fmt.Sprintf("[%s, %s: its data is damaged]", what, mime)
	}
	return fmt.Sprintf("[%s, %s, %d bytes: not shown]", what, mime, n)
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
