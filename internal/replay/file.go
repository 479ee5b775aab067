package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
)

// Writer writes a recording. It is used by one goroutine at a time, and keeps its first error.
type Writer struct {
	w     io.Writer
	hide  func([]byte) []byte
	sum   hash.Hash
	lines int
	bytes int64
	err   error
}

// NewWriter writes the first line. hide replaces what no line may contain; nil: nothing.
func NewWriter(w io.Writer, h Head, hide func([]byte) []byte) *Writer {
	out := &Writer{w: w, hide: hide, sum: sha256.New()}
	h.Format, h.V, h.About = Format, Version, About
	out.line(h)
	return out
}

// Add numbers an entry and writes it.
func (w *Writer) Add(e Entry) {
	e.N = w.lines
	w.line(e)
}

func (w *Writer) line(v any) {
	if w.err != nil {
		return
	}
	raw, err := json.Marshal(v)
	if err == nil && w.hide != nil {
		raw = w.hide(raw)
	}
	switch {
	case err != nil:
		w.err = err
		return
	case len(raw) > MaxLineBytes, w.bytes+int64(len(raw)) > MaxBytes:
		w.err = fmt.Errorf("the run is too large to be recorded (at most %d MiB, and %d MiB for one entry)", MaxBytes>>20,
			MaxLineBytes>>20)
		return
	}
	raw = append(raw, '\n')
	w.sum.Write(raw)
	w.bytes += int64(len(raw))
	w.lines++
	_, w.err = w.w.Write(raw)
}

// Close writes the last line. It does not close what was written to.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	raw, err := json.Marshal(tail{End: true, Lines: w.lines, SHA256: hex.EncodeToString(w.sum.Sum(nil))})
	if err == nil {
		_, err = w.w.Write(append(raw, '\n'))
	}
	return err
}

// Errors of files that cannot be read.
var (
	ErrNotRecording = errors.New("it is no recording of Drover (make one with `drover record`)")
	ErrNewer        = errors.New("a newer version of Drover has made it (update this one)")
	ErrOlder        = errors.New("an older version of Drover has made it (record the run again)")
	ErrCut          = errors.New("its end is missing: the copy was cut, or the recording was interrupted (copy or record it again)")
	ErrChanged      = errors.New("it was changed after it was recorded: its digest differs (use the original)")
)

// Read reads a whole recording.
func Read(from io.Reader) (*Recording, error) {
	in := bufio.NewReaderSize(io.LimitReader(from, MaxBytes+MaxLineBytes), 1<<16)
	sum, out := sha256.New(), &Recording{}
	for n := 0; ; n++ {
		raw, err := line(in)
		switch {
		case err != nil && n == 0:
			return nil, ErrNotRecording
		case errors.Is(err, io.EOF):
			return nil, ErrCut
		case err != nil:
			return nil, err
		}
		if n == 0 {
			if err := readHead(raw, &out.Head); err != nil {
				return nil, err
			}
			sum.Write(raw)
			continue
		}
		if bytes.HasPrefix(raw, []byte(`{"end":`)) {
			if err := readTail(raw, in, n, sum); err != nil {
				return nil, err
			}
			return out, nil
		}
		sum.Write(raw)
		var e Entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fmt.Errorf("line %d cannot be read: %w", n+1, ErrChanged)
		}
		if e.N != n {
			return nil, fmt.Errorf("line %d is entry %d: %w", n+1, e.N, ErrChanged)
		}
		if !e.whole() {
			return nil, fmt.Errorf("line %d lacks what an entry of kind %.40q has: %w", n+1, e.Kind, ErrChanged)
		}
		out.Entries = append(out.Entries, e)
	}
}

// whole reports whether an entry has what its kind needs.
func (e Entry) whole() bool {
	switch e.Kind {
	case CallEntry:
		return e.Request != nil && (e.Reply != nil || e.Failure != nil) && e.Call > 0 && e.Call <= maxCalls
	case ToolEntry:
		return e.Tool != nil && e.Decided != nil && (e.Decision != nil || e.Failure != nil)
	case EventEntry:
		return e.Event != nil
	case MessageEntry:
		return e.Message != nil
	}
	return true
}

// maxCalls is more than the calls of one agent that fit into a file.
const maxCalls = 1 << 22

// line returns the next line with its end. A line without one was cut.
func line(in *bufio.Reader) ([]byte, error) {
	var whole []byte
	for {
		part, err := in.ReadSlice('\n')
		whole = append(whole, part...)
		switch {
		case len(whole) > MaxLineBytes:
			return nil, errors.New("a line is too long: it is no recording that Drover has made")
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		default:
			return slices.Clip(whole), nil
		}
	}
}

func readHead(raw []byte, h *Head) error {
	var first struct {
		Format string `json:"format"`
		V      int    `json:"v"`
		Drover string `json:"drover_version"`
	}
	if json.Unmarshal(raw, &first) != nil || first.Format != Format || first.V < 1 {
		return ErrNotRecording
	}
	if first.V > Version {
		return fmt.Errorf("its format is version %d, and this program reads version %d: %w", first.V, Version, ErrNewer)
	}
	if first.V < Version {
		return fmt.Errorf("its format is version %d, of Drover %.40s, and this program reads version %d: %w", first.V,
			cmp.Or(first.Drover, "without a version"), Version, ErrOlder)
	}
	if err := json.Unmarshal(raw, h); err != nil {
		return ErrChanged
	}
	return nil
}

func readTail(raw []byte, in *bufio.Reader, lines int, sum hash.Hash) error {
	var t tail
	if err := json.Unmarshal(raw, &t); err != nil {
		return ErrChanged
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("it goes on after its end: %w", ErrChanged)
	}
	if t.Lines != lines || t.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		return ErrChanged
	}
	return nil
}
