// Package picture knows images in prompts: their format by their content, their bounds, and
// how the text of a prompt names images that are kept outside of it.
//
// It does no I/O, and stores no images.
package picture

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Bounds of the images of a prompt.
const (
	MaxBytes = 5 << 20  // of one
	MaxTotal = 20 << 20 // of all
	Max      = 20
)

// Type is the media type of an image by its content. ok is false for everything that models do
// not see: they see PNG, JPEG, GIF and WebP.
func Type(data []byte) (mediaType string, ok bool) {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png", true
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return "image/jpeg", true
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		return "image/gif", true
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return "image/webp", true
	}
	return "", false
}

// Check returns the media type of an image that a model may be shown.
func Check(data []byte) (mediaType string, err error) {
	mediaType, ok := Type(data)
	switch {
	case !ok:
		return "", fmt.Errorf("its content is neither PNG, JPEG, GIF nor WebP")
	case len(data) > MaxBytes:
		return "", fmt.Errorf("it has %d bytes, and may have %d (5 MiB): make it smaller", len(data), MaxBytes)
	}
	return mediaType, nil
}

// source is an image in the form of the Messages API.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // base64 in JSON
}

// Content returns the image in a result of [Source].
func Content(raw json.RawMessage) (data []byte, mediaType string, err error) {
	var s source
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, "", fmt.Errorf("decode an image: %w", err)
	}
	return s.Data, s.MediaType, nil
}

// Source is the content of an image in the form of the Messages API.
func Source(data []byte, mediaType string) json.RawMessage {
	raw, err := json.Marshal(source{"base64", mediaType, data})
	if err != nil {
		panic(fmt.Sprintf("picture: encode strings: %v", err)) // which have a form always
	}
	return raw
}

// Sum names an image by its content.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Ref names an image that is kept.
type Ref struct {
	Label string // as people read it: [image 1: a.png]
	Sum   string
}

// Label is how people read the name of image n.
func Label(n int, name string) string {
	name = strings.NewReplacer("[", "(", "]", ")", "#", "").Replace(excerpt.Line(name, 80))
	if name == "" {
		return fmt.Sprintf("[image %d]", n)
	}
	return fmt.Sprintf("[image %d: %s]", n, name)
}

// Name returns the name of the image in a label; empty: it has none. ok is false for other texts.
func Name(label string) (name string, ok bool) {
	inner, ok := strings.CutPrefix(label, "[image ")
	inner, closed := strings.CutSuffix(inner, "]")
	number, name, named := strings.Cut(inner, ": ")
	if !ok || !closed || len(number) > 3 || number == "" || strings.Trim(number, "0123456789") != "" ||
		strings.ContainsAny(name, "]\n") || named && name == "" || utf8.RuneCountInString(name) > 200 {
		return "", false
	}
	return name, true
}

// Add appends the names of images to a prompt.
func Add(prompt string, refs []Ref) string {
	var b strings.Builder
	b.WriteString(prompt)
	for _, r := range refs {
		b.WriteString("\n" + strings.TrimSuffix(r.Label, "]") + " #" + r.Sum + "]")
	}
	return b.String()
}

// Split cuts the names of images from the end of a prompt. shown is the prompt with their labels.
func Split(prompt string) (text, shown string, refs []Ref) {
	text = prompt
	for len(refs) < Max {
		at := strings.LastIndexByte(text, '\n')
		line, closed := strings.CutSuffix(text[at+1:], "]")
		mark := strings.LastIndex(line, " #")
		if at < 0 || !closed || mark < 0 {
			break
		}
		label, sum := line[:mark]+"]", line[mark+2:]
		_, ok := Name(label)
		if !ok || len(sum) != 2*sha256.Size || strings.Trim(sum, "0123456789abcdef") != "" {
			break
		}
		refs = slices.Insert(refs, 0, Ref{Label: label, Sum: sum})
		text = text[:at]
	}
	shown = text
	for _, r := range refs {
		if !strings.Contains(text, r.Label) {
			shown += "\n" + r.Label
		}
	}
	return text, strings.TrimPrefix(shown, "\n"), refs
}
