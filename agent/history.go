package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	chunkBytes = 1 << 20 // that are read at a time
	maxReaders = 4       // of one file, side by side
)

type loaded struct {
	History
	size int64  // bytes up to and with the last newline
	last string // UUID of the last line
}

// readHistory reads the conversation that the file ends with: from its end back
// to the last compaction, or to its start. Each byte is read about once, by
// several goroutines, which have ended when it returns. Lines that it cannot
// read are counted and passed over; what follows the last newline is torn.
func readHistory(f *os.File) (*loaded, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size, err := wholeLines(f, info.Size())
	if err != nil {
		return nil, err
	}
	h := &loaded{size: size}
	h.Torn = info.Size() - size
	if h.Meta, err = readMeta(f, size); err != nil {
		return nil, err
	}
	parts, err := readBack(&lines{f: f, end: size})
	if err != nil {
		return nil, err
	}
	n := 0
	for _, p := range parts {
		n += len(p.messages)
	}
	h.Messages = make([]Message, 0, n)
	var left []Record
	for _, p := range slices.Backward(parts) {
		h.Messages = append(h.Messages, p.messages...)
		h.Mail = append(h.Mail, p.mail...)
		h.Totals.join(p.totals)
		left = append(left, p.leftOut...)
		h.Skipped += p.skipped
		if p.last != "" {
			h.last = p.last
		}
	}
	for _, r := range left {
		h.Messages = without(h.Messages, r)
	}
	return h, nil
}

// readMeta takes the first line, if it is one of ours.
func readMeta(f *os.File, size int64) (Meta, error) {
	head := make([]byte, min(size, 64<<10))
	if err := readAt(f, head, 0); err != nil {
		return Meta{}, err
	}
	first, _, _ := bytes.Cut(head, []byte("\n"))
	var l line
	if json.Unmarshal(first, &l) != nil || l.Format == 0 {
		return Meta{}, nil
	}
	return l.meta(), l.known()
}

func (l *line) meta() Meta {
	return Meta{
		ParentTask: l.ParentTask, Version: l.Version, Cwd: l.Cwd, IsSidechain: l.IsSidechain,
		AgentName: l.AgentName, AgentID: l.AgentID, SessionID: l.SessionID, ForkedFrom: l.ForkedFrom,
	}
}

// known refuses lines of a later form.
func (l *line) known() error {
	if l.Format > formatVersion {
		return fmt.Errorf("its form is %d, this program knows %d; use a newer program", l.Format, formatVersion)
	}
	return nil
}

// part is what some lines in a row hold.
type part struct {
	messages []Message
	mail     []int64
	leftOut  []Record
	totals   Totals
	skipped  int
	last     string
	boundary bool // it begins with a compaction; what is before it does not count
	err      error
}

// readBack returns the parts of a file, the last first.
func readBack(r *lines) ([]*part, error) {
	var mu sync.Mutex // guards r and the variables below
	var parts []*part
	var failed error
	over := false
	work := func() {
		for {
			mu.Lock()
			if over || failed != nil {
				mu.Unlock()
				return
			}
			text, skipped, err := r.before(chunkBytes)
			if err != nil || text == nil && skipped == 0 {
				over, failed = true, err
				mu.Unlock()
				return
			}
			p := &part{skipped: skipped}
			parts = append(parts, p)
			mu.Unlock()
			p.take(text)
			if p.boundary || p.err != nil {
				mu.Lock()
				over = true
				mu.Unlock()
			}
		}
	}
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxReaders, int(r.end/chunkBytes)) - 1 {
		all.Go(work) // joined below
	}
	work()
	all.Wait()
	if failed != nil {
		return nil, failed
	}
	for i, p := range parts {
		if p.err != nil {
			return nil, p.err
		}
		if p.boundary {
			return parts[:i+1], nil
		}
	}
	return parts, nil
}

// take adds lines, each with its newline. Messages are parts of text.
func (p *part) take(text []byte) {
	for len(text) > 0 {
		one, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		l, m, ok := parseQuick(one)
		if !ok {
			l, m, ok = parseLine(one)
		}
		if !ok {
			p.skipped++
			continue
		}
		if p.err = l.known(); p.err != nil {
			return
		}
		p.add(l, m)
	}
}

func (p *part) add(l line, m Message) {
	p.last = l.UUID
	if l.Subtype == boundarySubtype && l.Totals != nil && m.raw != nil {
		p.boundary = true
		p.messages, p.mail, p.totals = append(p.messages[:0], m), l.Mail, *l.Totals
		return
	}
	if m.raw != nil {
		p.messages = append(p.messages, m)
	}
	p.mail = append(p.mail, l.Mail...)
	if len(l.LeftOut) > 0 {
		p.leftOut = append(p.leftOut, Record{Note: l.Note, LeftOut: l.LeftOut})
	}
	p.totals.count(Record{Usage: l.Usage, ToolUses: l.ToolUses, Aside: l.Aside})
}

// lines gives a file in pieces of whole lines, from its end to its start.
type lines struct {
	f   *os.File
	end int64 // a line ends before it, or it is 0
}

// before returns the lines before the last ones given: about so many bytes, and
// one line at least. They are nil at the start of the file; a line that is too
// long is not read but counted.
func (r *lines) before(about int64) (text []byte, skipped int, err error) {
	const most = maxLineBytes + 1 // with the newline before it
	for about = min(about, most); r.end > 0; about = min(4*about, most) {
		from := max(0, r.end-about)
		text = make([]byte, r.end-from)
		if err := readAt(r.f, text, from); err != nil {
			return nil, 0, err
		}
		if from == 0 {
			r.end = 0
			return text, 0, nil
		}
		if i := bytes.IndexByte(text[:len(text)-1], '\n'); i >= 0 {
			r.end = from + int64(i) + 1
			return text[i+1:], 0, nil
		}
		if about == most {
			r.end, err = wholeLines(r.f, from)
			return nil, 1, err
		}
	}
	return nil, 0, nil
}

// wholeLines is how many bytes of the first size are lines with a newline.
func wholeLines(f *os.File, size int64) (int64, error) {
	buf := make([]byte, min(size, 64<<10))
	for size > 0 {
		from := max(0, size-int64(len(buf)))
		b := buf[:size-from]
		if err := readAt(f, b, from); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		size = from
	}
	return 0, nil
}

func readAt(f *os.File, b []byte, at int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	return err
}

// parseQuick reads what a resume needs of a line that we wrote, and leaves the
// rest out. It is not ok where [parseLine] must decide.
func parseQuick(text []byte) (l line, m Message, ok bool) {
	s := scanner{b: text}
	if !s.eat("{") {
		return l, m, false
	}
	for n := 0; ; n++ {
		if s.eat("}") {
			return l, m, s.ascii() && s.i == len(text) && l.UUID != "" && l.EntryType == "system"
		}
		if n > 0 && !s.eat(",") {
			return l, m, false
		}
		key, ok := s.bare()
		if !ok || !s.eat(":") {
			return l, m, false
		}
		if string(key) == "message" && s.ascii() && text[len(text)-1] == '}' {
			if m, ok = scanned(text[min(s.i, len(text)-1) : len(text)-1]); !ok {
				return l, m, false
			}
			return l, m, l.holds(m)
		}
		start := s.i
		if !s.value(0) || !l.field(string(key), text[start:s.i]) {
			return l, m, false
		}
	}
}

// field sets what a resume needs, and says whether it knows the field.
func (l *line) field(key string, v []byte) bool {
	switch key {
	case "entry_type", "uuid":
		if v[0] != '"' || bytes.IndexByte(v, '\\') >= 0 {
			return false
		}
		if key == "uuid" {
			l.UUID = string(v[1 : len(v)-1])
		} else {
			l.EntryType = string(v[1 : len(v)-1])
		}
		return true
	case "mail":
		return json.Unmarshal(v, &l.Mail) == nil
	case "usage":
		return json.Unmarshal(v, &l.Usage) == nil
	case "prompt_block":
		return v[0] != '"'
	case "typed":
		return v[0] == '"'
	case "tool_uses":
		return json.Unmarshal(v, &l.ToolUses) == nil
	case "timestamp", "is_sidechain":
		return v[0] != '"'
	case "parent_uuid", "agent_name", "agent_id", "session_id", "reply_id", "model", "stop_reason":
		return v[0] == '"'
	}
	return false
}

// holds says whether a message may stand in a line of this type.
func (l *line) holds(m Message) bool {
	if l.UUID == "" {
		return false
	}
	return string(m.role) == l.EntryType || l.Subtype == boundarySubtype && l.EntryType == "system" && m.role == User
}

// parseLine takes a line apart. Lines that we wrote have the message at their
// end: it is checked once and kept as it is. The split cannot be fooled by a
// text, in which the quotes would be escaped.
func parseLine(text []byte) (l line, m Message, ok bool) {
	defer l.renamed()
	if i := bytes.Index(text, []byte(messageField)); i >= 0 && text[len(text)-1] == '}' {
		head := append(bytes.Clone(text[:i]), '}')
		if json.Unmarshal(head, &l) == nil && l.Message == nil {
			if m, ok = parseMessage(text[i+len(messageField) : len(text)-1]); ok {
				return l, m, l.holds(m)
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
	return l, m, ok && l.holds(m)
}

// renamed moves what a field of an older file holds to the field that has it now.
func (l *line) renamed() {
	if len(l.Mail) == 0 {
		l.Mail = l.Letters
	}
	l.Letters = nil
}

const messageField = `,"message":`

// badEscape finds half of a surrogate pair, and whole pairs too: both are rare.
func badEscape(raw []byte) bool {
	for found := true; found; {
		_, raw, found = bytes.Cut(raw, []byte(`\u`))
		if len(raw) > 1 && raw[0]|0x20 == 'd' && strings.IndexByte("89abcdefABCDEF", raw[1]) >= 0 {
			return true
		}
	}
	return false
}

// scanned is a message that can be used as it is.
func scanned(raw []byte) (m Message, ok bool) {
	s := scanner{b: raw}
	role, ok := s.message()
	if !ok || !s.ascii() && (!utf8.Valid(raw) || s.coded && badEscape(raw)) {
		return m, false
	}
	return Message{role: role, raw: raw[:len(raw):len(raw)], plain: !s.paired}, true
}

func parseMessage(raw []byte) (m Message, ok bool) {
	if len(raw) == 0 {
		return m, false
	}
	if m, ok := scanned(raw); ok {
		return m, true
	}
	if !utf8.Valid(raw) || badEscape(raw) {
		raw = clean(raw)
	}
	if m, ok := scanned(raw); ok {
		return m, true
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

// lineReader reads lines from the start of a file. A line that is too long
// reads as an empty one.
type lineReader struct {
	in    *bufio.Reader
	text  []byte
	begin int64 // of the line that was returned last
	end   int64 // of what was read so far
}

func newLineReader(in io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 256<<10)}
}

// next returns a line without its newline, which is the caller's to keep, and
// io.EOF for what follows the last newline.
func (r *lineReader) next() ([]byte, error) {
	r.text, r.begin = nil, r.end
	size := 0
	for {
		part, err := r.in.ReadSlice('\n')
		r.end += int64(len(part))
		if size += len(part); size <= maxLineBytes {
			r.text = append(r.text, part...)
		} else {
			r.text = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimSuffix(r.text, []byte("\n")), nil
	}
}
