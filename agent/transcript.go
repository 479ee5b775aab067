package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// formatVersion is the form of the lines. A file of a later form is not
// written to.
const formatVersion = 1

// maxLineBytes bounds one line. A longer one is not written, and skipped when
// read.
const maxLineBytes = 64 << 20

// ErrTranscriptBusy says that another process, or another [Transcript] of this
// one, has the file open for appending.
var ErrTranscriptBusy = errors.New("the transcript is in use by another process")

// Meta is the first line of a transcript, and how it is kept.
type Meta struct {
	ParentTask  string // the task that runs the agent; empty for the main agent
	Version     string // of the program
	Cwd         string
	IsSidechain bool // a subagent
	AgentName   string
	AgentID     string
	SessionID   string
	ForkedFrom  string // the transcript that it began as a copy of; empty: none

	// Sync makes each Append safe against power loss, not only against the
	// death of the process.
	Sync bool
}

// Record is what [Transcript.Append] keeps. A Record without a message keeps
// only what a lost reply has cost.
type Record struct {
	Message    Message
	Mail       []int64 // the mail that the message holds
	Usage      *Usage  // of the reply that the message is
	ToolUses   int     // calls in the reply
	ReplyID    string
	Model      string
	StopReason string
	Cut        bool   // the reply did not come to its end
	Aside      bool   // the reply is no part of the conversation: only its cost counts
	Note       string // for people, of a Record without a message: the model is not told

	// LeftOut are blocks of the conversation that were refused, by their sums: from here on Note
	// takes their place.
	LeftOut []string

	// Prompt is the number of the block of the message that the user has written, counted
	// from 1; 0: the message is no prompt. Typed is what they typed, where it is another text.
	Prompt int
	Typed  string

	// Boundary says that the message, of the user, takes the place of all that
	// was said before. Usage is then what the summary has cost.
	Boundary *Boundary

	At time.Time // when it was kept; set by readers only
}

// Boundary is where a conversation was summed up.
type Boundary struct {
	Trigger string // manual, auto or overflow
	Before  int64  // tokens of context before it
}

const boundarySubtype = "compact_boundary"

// line is one line of the file. The message comes last, after the fields of
// this struct, so that a reader need not take it apart.
type line struct {
	EntryType   string   `json:"entry_type"` // system, user, assistant
	UUID        string   `json:"uuid"`
	ParentUUID  string   `json:"parent_uuid,omitempty"`
	IsSidechain bool     `json:"is_sidechain"`
	AgentName   string   `json:"agent_name"`
	AgentID     string   `json:"agent_id,omitempty"`
	SessionID   string   `json:"session_id"`
	Timestamp   int64    `json:"timestamp"` // ms since 1970
	Mail        []int64  `json:"mail,omitempty"`
	Letters     []int64  `json:"letters,omitempty"` // Mail, as files before version 0.1 have it; see [line.renamed]
	Usage       *Usage   `json:"usage,omitempty"`
	ToolUses    int      `json:"tool_uses,omitempty"`
	ReplyID     string   `json:"reply_id,omitempty"`
	Model       string   `json:"model,omitempty"`
	StopReason  string   `json:"stop_reason,omitempty"`
	Cut         bool     `json:"cut,omitempty"`
	Aside       bool     `json:"aside,omitempty"`
	Note        string   `json:"note,omitempty"`
	LeftOut     []string `json:"left_out,omitempty"`
	Prompt      int      `json:"prompt_block,omitempty"`
	Typed       string   `json:"typed,omitempty"`

	// Boundaries only. One holds the numbers of all mail messages told so far, and
	// the totals with its own usage: nobody has to read what is before it.
	Subtype string  `json:"subtype,omitempty"`
	Trigger string  `json:"trigger,omitempty"`
	Before  int64   `json:"tokens_before,omitempty"`
	Totals  *Totals `json:"totals,omitempty"`

	// First line only.
	Format     int    `json:"format,omitempty"`
	ParentTask string `json:"parent_task,omitempty"`
	ForkedFrom string `json:"forked_from,omitempty"`
	Version    string `json:"version,omitempty"`
	Cwd        string `json:"cwd,omitempty"`

	Message json.RawMessage `json:"message,omitempty"`
}

// Transcript is the file that holds an agent's conversation: one JSON object
// per line, only ever appended to. Where the conversation was summed up, what
// is before stays in the file, for people. Its methods may be called by
// several goroutines.
type Transcript struct {
	path string // never changes

	mu     sync.Mutex
	file   *os.File // guarded by mu; nil: closed
	size   int64    // guarded by mu; every byte before it is a whole line
	last   string   // guarded by mu; UUID of the last line
	broken error    // guarded by mu; what is on disk is unknown
	meta   Meta     // guarded by mu
	told   map[int64]struct{}
	totals Totals
}

// History is what a transcript held when it was opened.
type History struct {
	Meta     Meta      // of the first line; Sync is that of the opening
	Messages []Message // since the last compaction
	Mail     []int64   // sequence numbers of all mail told so far
	Totals   Totals    // of all runs
	Skipped  int       // lines since then that could not be read; they are left in the file
	Torn     int64     // bytes of an unfinished last line, moved to PATH.torn
}

// OpenTranscript opens the file for appending, with mode 0600 if it is new, and
// reads what it holds. It refuses links and anything but a regular file. An
// error that wraps [ErrTranscriptBusy] says that somebody else appends to it.
func OpenTranscript(path string, meta Meta) (*Transcript, *History, error) {
	f, err := openLocked(path)
	if err != nil {
		return nil, nil, fmt.Errorf("open transcript %s: %w", path, err)
	}
	t := &Transcript{path: path, file: f, meta: meta, told: map[int64]struct{}{}}
	h, err := t.load()
	if err != nil {
		_ = f.Close()
		return nil, nil, fmt.Errorf("open transcript %s: %w", path, err)
	}
	return t, h, nil
}

func (t *Transcript) load() (*History, error) {
	h, err := readHistory(t.file)
	if err != nil {
		return nil, err
	}
	h.Meta.Sync = t.meta.Sync
	t.size, t.last, t.totals = h.size, h.last, h.Totals
	for _, seq := range h.Mail {
		t.told[seq] = struct{}{}
	}
	if h.Torn > 0 {
		if err := t.setAside(h.Torn); err != nil {
			return nil, err
		}
	}
	if t.size > 0 {
		return &h.History, nil
	}
	h.Meta = t.meta
	head := t.meta.head()
	if err := t.write(encodeLine(head, nil)...); err != nil {
		return nil, err
	}
	t.last = head.UUID
	if t.meta.Sync {
		return &h.History, syncDir(filepath.Dir(t.path))
	}
	return &h.History, nil
}

// setAside moves the unfinished last line out of the way: a line that is
// appended to it would be lost with it.
func (t *Transcript) setAside(n int64) error {
	aside, err := openAside(t.path + ".torn")
	if err != nil {
		return fmt.Errorf("keep torn line: %w", err)
	}
	_, err = io.Copy(aside, io.NewSectionReader(t.file, t.size, n))
	if err == nil {
		_, err = aside.Write([]byte("\n"))
	}
	if err == nil && t.meta.Sync {
		err = aside.Sync()
	}
	if err = errors.Join(err, aside.Close()); err != nil {
		return fmt.Errorf("keep torn line: %w", err)
	}
	if err := t.file.Truncate(t.size); err != nil {
		return fmt.Errorf("cut torn line: %w", err)
	}
	return nil
}

// Append adds the records, all or none, and returns when no end of this process
// can lose them. After an error nothing was added, and it may be tried again,
// unless the error came from the disk after the write; then every further
// Append gives that error.
func (t *Transcript) Append(records ...Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines [][]byte
	var letters []int64
	last, totals := t.last, t.totals
	for _, r := range records {
		letters = append(letters, r.Mail...)
		l := t.meta.newLine("system")
		l.ParentUUID = last
		if r.Message.raw != nil {
			l.EntryType = string(r.Message.role)
		}
		l.Mail, l.Usage, l.ToolUses = r.Mail, r.Usage, r.ToolUses
		l.ReplyID, l.Model, l.StopReason, l.Cut, l.Aside = r.ReplyID, r.Model, r.StopReason, r.Cut, r.Aside
		l.Note, l.LeftOut, l.Prompt, l.Typed = r.Note, r.LeftOut, r.Prompt, r.Typed
		totals.count(r)
		if r.Boundary != nil {
			if r.Message.role != User {
				return fmt.Errorf("append to transcript %s: a summary must be a message of the user", t.path)
			}
			l.bound(*r.Boundary, totals, slices.AppendSeq(slices.Clone(letters), maps.Keys(t.told)))
		}
		parts := encodeLine(l, r.Message.raw)
		if n := length(parts); n > maxLineBytes {
			return fmt.Errorf("append to transcript %s: message of %d bytes is over the limit of %d", t.path, n, maxLineBytes)
		}
		lines = append(lines, parts...)
		last = l.UUID
	}
	if len(lines) == 0 {
		return nil
	}
	if err := t.write(lines...); err != nil {
		return fmt.Errorf("append to transcript %s: %w", t.path, err)
	}
	t.last, t.totals = last, totals
	for _, seq := range letters {
		t.told[seq] = struct{}{}
	}
	return nil
}

// bound makes the line a boundary. The totals are those after it, told all
// mail messages.
func (l *line) bound(b Boundary, totals Totals, told []int64) {
	l.EntryType, l.Subtype, l.Trigger, l.Before = "system", boundarySubtype, b.Trigger, b.Before
	l.Totals = &totals
	slices.Sort(told)
	l.Mail = slices.Compact(told)
}

// joinedBytes is up to where lines are joined for one write(2).
const joinedBytes = 1 << 20

// write adds whole lines, whose parts are given, by one write(2) if they are not very long. A
// part of them that got through is taken back, so that a full disk leaves no torn line. t.mu
// is held, or t is not shared yet.
func (t *Transcript) write(parts ...[]byte) error {
	switch {
	case t.file == nil:
		return os.ErrClosed
	case t.broken != nil:
		return t.broken
	}
	size := length(parts)
	if size <= joinedBytes {
		parts = [][]byte{slices.Concat(parts...)}
	}
	if err := writeAll(t.file, parts); err != nil {
		if cut := t.file.Truncate(t.size); cut != nil {
			t.broken = errors.Join(err, cut)
		}
		return err
	}
	if t.meta.Sync {
		// After a failed fsync nobody knows what is on disk, and a second one
		// would say that all is well.
		if err := t.file.Sync(); err != nil {
			t.broken = err
			return err
		}
	}
	t.size += int64(size)
	return nil
}

func writeAll(to io.Writer, parts [][]byte) error {
	for _, p := range parts {
		if _, err := to.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func length(parts [][]byte) (n int) {
	for _, p := range parts {
		n += len(p)
	}
	return n
}

func (m Meta) newLine(entryType string) line {
	return line{
		EntryType: entryType, UUID: uuid.NewString(), IsSidechain: m.IsSidechain,
		AgentName: m.AgentName, AgentID: m.AgentID, SessionID: m.SessionID,
		Timestamp: time.Now().UnixMilli(),
	}
}

// head is the first line.
func (m Meta) head() line {
	l := m.newLine("system")
	l.Format, l.ParentTask, l.Version, l.Cwd, l.ForkedFrom = formatVersion, m.ParentTask, m.Version, m.Cwd, m.ForkedFrom
	return l
}

// encodeLine is a line in parts, one of which is the message, which is not encoded again.
func encodeLine(l line, message json.RawMessage) [][]byte {
	b := encode(l)
	if message != nil {
		if bytes.IndexByte(message, '\n') >= 0 {
			var flat bytes.Buffer
			if err := json.Compact(&flat, message); err == nil {
				message = flat.Bytes()
			}
		}
		return [][]byte{append(b[:len(b)-1], messageField...), message, []byte("}\n")}
	}
	return [][]byte{append(b, '\n')}
}

// Path is where the file is.
func (t *Transcript) Path() string { return t.path }

// Totals is what the conversation in the file has used.
func (t *Transcript) Totals() Totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.totals
}

// Holds says whether the file holds the mail message.
func (t *Transcript) Holds(seq int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.told[seq]
	return ok
}

// Close frees the file. A second Close does nothing.
func (t *Transcript) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	f := t.file
	t.file = nil
	return f.Close()
}
