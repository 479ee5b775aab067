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
		Message: m, Letters: l.Letters, Usage: l.Usage, ToolUses: l.ToolUses, ReplyID: l.ReplyID, Model: l.Model,
		StopReason: l.StopReason, Cut: l.Cut, Aside: l.Aside, At: time.UnixMilli(l.Timestamp),
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
