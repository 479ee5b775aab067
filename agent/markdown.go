package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	shownInput  = 400  // bytes of a call's input
	shownResult = 4000 // bytes of its result
)

// WriteMarkdown writes the conversation of a transcript for people, also what
// was said before it was summed up. Inputs and results of calls are cut;
// thinking is left out. Nothing that is written can steer a terminal. It takes
// no lock, and passes over lines that it cannot read.
func WriteMarkdown(w io.Writer, path string) error {
	f, err := openRead(path)
	if err != nil {
		return fmt.Errorf("read transcript %s: %w", path, err)
	}
	defer f.Close()
	p := page{bufio.NewWriter(w)}
	if err := entries(f, p.entry); err != nil {
		return fmt.Errorf("read transcript %s: %w", path, err)
	}
	if err := p.Flush(); err != nil {
		return fmt.Errorf("write conversation: %w", err)
	}
	return nil
}

// page is what is being written. Its buffer keeps the first error.
type page struct{ *bufio.Writer }

func (p page) put(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

func (p page) entry(l line, m Message) error {
	at := time.UnixMilli(l.Timestamp).UTC().Format(time.DateTime)
	switch {
	case l.Format > 0:
		p.put("# Conversation of %s\n\nBegun %s UTC in %s, session %s.\n", name(l.AgentName), at, name(l.Cwd),
			name(l.SessionID))
	case m.raw == nil && l.Note != "":
		p.put("\n*%s, %s UTC*\n", name(l.Note), at)
	case m.raw == nil:
	case l.Subtype == boundarySubtype:
		p.put("\n---\n\n## Summed up, %s UTC (%s, %d tokens before)\n", at, name(l.Trigger), l.Before)
	case m.role == User:
		p.put("\n## User, %s UTC\n", at)
	default:
		p.put("\n## %s, %s UTC\n", name(l.AgentName), at)
	}
	if m.raw == nil {
		return nil
	}
	blocks, err := m.Blocks()
	for _, b := range blocks {
		p.block(b)
	}
	return err
}

func (p page) block(b Block) {
	switch b.Type {
	case "text":
		p.put("\n%s\n", visible(strings.TrimSpace(b.Text)))
	case "image":
		p.put("\n*[an image]*\n")
	case "tool_use":
		p.put("\n**Call of %s**\n\n%s\n", name(b.Name), fenced(excerpt(string(b.Input), shownInput)))
	case "tool_result":
		word := "Result"
		if b.IsError {
			word = "Error"
		}
		p.put("\n**%s**\n\n%s\n", word, fenced(excerpt(resultText(b), shownResult)))
	}
}

// resultText is what a result says.
func resultText(b Block) string {
	var text string
	if json.Unmarshal(b.Content, &text) == nil {
		return text
	}
	var parts []Block
	if json.Unmarshal(b.Content, &parts) != nil {
		return string(b.Content)
	}
	return spoken(parts)
}

// name is a short text on one line.
func name(s string) string {
	if s = excerpt(strings.Join(strings.Fields(visible(s)), " "), 200); s == "" {
		return "–"
	}
	return s
}

// fenced is a text between fences that it cannot close.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + strings.TrimRight(visible(text), "\n") + "\n" + fence
}

// visible shows as a mark what has no shape of its own or changes that of
// others.
func visible(s string) string {
	var out strings.Builder
	for _, r := range strings.ToValidUTF8(s, string(utf8.RuneError)) {
		if r == '\n' || r == '\t' || r == ' ' || unicode.IsPrint(r) {
			out.WriteRune(r)
		} else if r != '\r' {
			fmt.Fprintf(&out, "<U+%04X>", r)
		}
	}
	return out.String()
}
