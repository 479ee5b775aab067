package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"
)

const messageField = `,"message":`

type loaded struct {
	History
	size int64  // bytes up to and with the last newline
	last string // UUID of the last line
}

// readHistory reads lines from the start, each once. Lines that it cannot read
// are counted and passed over; what follows the last newline is torn.
func readHistory(r io.Reader) (*loaded, error) {
	h := &loaded{}
	br := bufio.NewReaderSize(r, 256<<10)
	for {
		text, size, err := readLine(br, maxLineBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if errors.Is(err, io.EOF) {
			h.Torn = size
			return h, nil
		}
		h.size += size
		if err := h.take(text); err != nil {
			return nil, err
		}
	}
}

// take adds one line; a nil text is one that was too long.
func (h *loaded) take(text []byte) error {
	l, m, ok := parseLine(text)
	if !ok {
		h.Skipped++
		return nil
	}
	if l.Format > formatVersion {
		return fmt.Errorf("its form is %d, this program knows %d; use a newer program", l.Format, formatVersion)
	}
	if l.Format > 0 && h.last == "" {
		h.Meta = Meta{
			ParentTask: l.ParentTask, Version: l.Version, Cwd: l.Cwd, IsSidechain: l.IsSidechain,
			AgentName: l.AgentName, AgentID: l.AgentID, SessionID: l.SessionID,
		}
	}
	h.last = l.UUID
	if m.raw != nil {
		h.Messages = append(h.Messages, m)
	}
	h.Letters = append(h.Letters, l.Letters...)
	if l.Usage != nil {
		h.Totals.add(*l.Usage, l.ToolUses)
	}
	return nil
}

// readLine returns the next line without its newline, and its size with it. A
// line over limit is read to its end but not kept: text is nil.
func readLine(br *bufio.Reader, limit int) (text []byte, size int64, err error) {
	for {
		part, err := br.ReadSlice('\n')
		size += int64(len(part))
		if size <= int64(limit) {
			text = append(text, part...)
		} else {
			text = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, size, err
		}
		return bytes.TrimSuffix(text, []byte("\n")), size, nil
	}
}

// parseLine takes a line apart. Lines that we wrote have the message at their
// end: it is checked once and kept as it is. The split cannot be fooled by a
// text, in which the quotes would be escaped.
func parseLine(text []byte) (l line, m Message, ok bool) {
	if i := bytes.Index(text, []byte(messageField)); i >= 0 && text[len(text)-1] == '}' {
		head := append(bytes.Clone(text[:i]), '}')
		if json.Unmarshal(head, &l) == nil && l.Message == nil {
			if m, ok = parseMessage(text[i+len(messageField) : len(text)-1]); ok {
				return l, m, l.UUID != "" && string(m.role) == l.EntryType
			}
		}
		l = line{}
	}
	if json.Unmarshal(text, &l) != nil || l.UUID == "" {
		return l, m, false
	}
	if l.Message == nil {
		return l, m, l.EntryType == "system"
	}
	m, ok = parseMessage(l.Message)
	l.Message = nil
	return l, m, ok && string(m.role) == l.EntryType
}

// badEscape finds half of a surrogate pair, and whole pairs too: both are rare.
var badEscape = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

func parseMessage(raw []byte) (m Message, ok bool) {
	if len(raw) == 0 {
		return m, false
	}
	if !utf8.Valid(raw) || bytes.Contains(raw, []byte(`\u`)) && badEscape.Match(raw) {
		raw = clean(raw)
	}
	if _, ok := scanMessage(raw); ok {
		role := Assistant
		if bytes.HasPrefix(raw, []byte(`{"role":"user"`)) {
			role = User
		}
		return Message{role: role, raw: raw}, true
	}
	if m.UnmarshalJSON(raw) != nil {
		return Message{}, false
	}
	_, err := m.Blocks()
	return m, err == nil
}

// clean puts replacement characters where the text is not valid Unicode. What is
// not JSON stays as it is.
func clean(raw []byte) []byte {
	if !json.Valid(raw) {
		return raw
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return raw
	}
	return encode(v)
}
