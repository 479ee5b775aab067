package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"
)

// tailBytes is how much [Tail] reads at a time: a screen of usual messages.
const tailBytes = 128 << 10

// Tail returns the last n records of a transcript that hold a message, the
// oldest first. It reads from the end and no more than it needs, takes no lock,
// and passes over lines that it cannot read, and over one that is being
// written. Compactions are records with a Boundary; what was said before them
// is returned too.
func Tail(path string, n int) ([]Record, error) {
	f, err := openRead(path)
	if err != nil {
		return nil, fmt.Errorf("read transcript %s: %w", path, err)
	}
	defer f.Close()
	records, err := tail(f, n)
	if err != nil {
		return nil, fmt.Errorf("read transcript %s: %w", path, err)
	}
	return records, nil
}

// Reading reads a transcript on as it grows: its zero value with a Path begins at the
// start. It is used by one goroutine at a time.
type Reading struct {
	Path string
	at   int64 // what is before it has been read
}

// Next gives the records with a message that have come since the last Next, oldest
// first, and reads no more than those. Like [Tail] it takes no lock and passes over what
// it cannot read; a line that is being written is for the next Next. After an error of
// each it begins where it began.
func (r *Reading) Next(each func(Record) error) error {
	if err := r.next(each); err != nil {
		return fmt.Errorf("read transcript %s: %w", r.Path, err)
	}
	return nil
}

func (r *Reading) next(each func(Record) error) error {
	f, err := openRead(r.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() <= r.at {
		return err
	}
	end, err := wholeLines(f, info.Size())
	if err != nil || end <= r.at {
		return err
	}
	err = entries(io.NewSectionReader(f, r.at, end-r.at), func(l line, m Message) error {
		if m.raw == nil {
			return nil
		}
		return each(l.record(m))
	})
	if err == nil {
		r.at = end
	}
	return err
}

func tail(f *os.File, n int) ([]Record, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	end, err := wholeLines(f, info.Size())
	if err != nil {
		return nil, err
	}
	var records []Record // the newest first
	for r := (&lines{f: f, end: end}); len(records) < n; {
		text, skipped, err := r.before(tailBytes)
		if err != nil {
			return nil, err
		}
		if text == nil && skipped == 0 {
			break
		}
		for one := range backward(text) {
			if l, m, ok := parseLine(one); ok && m.raw != nil && len(records) < n {
				records = append(records, l.record(m))
			}
		}
	}
	slices.Reverse(records)
	return records, nil
}

// backward gives the lines of a text, the last first.
func backward(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			text = text[:len(text)-1] // the newline
			i := bytes.LastIndexByte(text, '\n') + 1
			if !yield(text[i:]) {
				return
			}
			text = text[:i]
		}
	}
}

func (l *line) record(m Message) Record {
	r := Record{
		Message: m, Mail: l.Mail, Usage: l.Usage, ToolUses: l.ToolUses, ReplyID: l.ReplyID, Model: l.Model,
		StopReason: l.StopReason, Cut: l.Cut, Aside: l.Aside, Prompt: l.Prompt, Typed: l.Typed,
		At: time.UnixMilli(l.Timestamp),
	}
	if l.Subtype == boundarySubtype {
		r.Boundary = &Boundary{Trigger: l.Trigger, Before: l.Before}
	}
	return r
}

// conversationAt is where the conversation of a file of so many bytes begins:
// at its last compaction, or at its start.
func conversationAt(f *os.File, size int64) (int64, error) {
	r := &lines{f: f, end: size}
	for {
		text, skipped, err := r.before(chunkBytes)
		if err != nil || text == nil && skipped == 0 {
			return 0, err
		}
		at := r.end + int64(len(text))
		for one := range backward(text) {
			at -= int64(len(one)) + 1
			if !bytes.Contains(one, []byte(boundarySubtype)) {
				continue
			}
			if l, m, ok := parseLine(one); ok && m.raw != nil && l.Subtype == boundarySubtype && l.Totals != nil {
				return at, nil
			}
		}
	}
}

// entries gives the lines of a reader that can be read.
func entries(in io.Reader, each func(l line, m Message) error) error {
	r := newLineReader(in)
	for {
		text, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l, m, ok := parseLine(text)
		if !ok {
			continue
		}
		if err := l.known(); err != nil {
			return err
		}
		if err := each(l, m); err != nil {
			return err
		}
	}
}
