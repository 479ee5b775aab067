package acpserver

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/api/control"
)

// promptOf returns a prompt of the client as the main agent gets it: texts, embedded resources, names of linked
// resources, and images.
func promptOf(blocks []acp.ContentBlock) (control.PromptRequest, error) {
	var req control.PromptRequest
	var text strings.Builder
	image := func(data, mime string) error {
		raw, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return invalid("read an image of the prompt: %v", err)
		}
		req.Images = append(req.Images, control.Image{MediaType: mime, Data: raw})
		return nil
	}
	for i, b := range blocks {
		switch {
		case b.Text != nil:
			text.WriteString(b.Text.Text)
		case b.Image != nil:
			if err := image(b.Image.Data, b.Image.MimeType); err != nil {
				return req, err
			}
		case b.ResourceLink != nil:
			text.WriteString("@" + location(b.ResourceLink.Uri))
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			fmt.Fprintf(&text, "\n<context ref=%q>\n%s\n</context>\n", location(r.Uri), r.Text)
		case b.Resource != nil && b.Resource.Resource.BlobResourceContents != nil:
			r := b.Resource.Resource.BlobResourceContents
			if r.MimeType == nil || !strings.HasPrefix(*r.MimeType, "image/") {
				text.WriteString("@" + location(r.Uri))
				break
			}
			if err := image(r.Blob, *r.MimeType); err != nil {
				return req, err
			}
		default:
			return req, invalid("block %d of the prompt is not text, an image, a resource or a link", i+1)
		}
	}
	req.Text = text.String()
	if strings.TrimSpace(req.Text) == "" && len(req.Images) == 0 {
		return req, invalid("the prompt is empty")
	}
	return req, nil
}

// location is an address for the model: the path of a file with its lines.
func location(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return uri
	}
	at := path.Clean(u.Path)
	if u.Fragment != "" {
		at += "#" + u.Fragment
	}
	return at
}
