package hook

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

const (
	maxKept = 8_000_000 // bytes of a stream in memory

	// The shown part of a longer stream: its last lines, or without a file its beginning,
	// which together with a line about the rest fits into the part that is used.
	recentLines = 5
	recentBytes = 16 << 10
	headBytes   = maxText - 4<<10
	maxTrouble  = 1000 // characters
)

// sink takes in one stream of a hook: in memory, and once it is too much for that in
// a file, from its first byte on.
type sink struct {
	name  string
	spill func(limit int64) (Overflow, error) // see [Base.Spill]

	total  int64
	kept   bytes.Buffer // all while it is short; then, where no file could be made, the beginning
	over   bool         // it is too long
	object bool         // and begins as an object does
	file   Overflow     // nil: it is not too long, or has no file
	wrote  int64        // bytes that the file has
	err    error        // why it has no more
	recent []byte       // the end, once there is a file
}

// copy reads to the end, or to the deadline of the file. line is called once,
// with the first line, unless it is nil.
func (s *sink) copy(from *os.File, count func(int), line func([]byte)) {
	defer s.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		s.add(buf[:n])
		count(n)
		if line != nil && s.total <= int64(2*len(buf)) {
			if i := bytes.IndexByte(s.kept.Bytes(), '\n'); i >= 0 {
				line(s.kept.Bytes()[:i])
				line = nil
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *sink) add(p []byte) {
	s.total += int64(len(p))
	if s.total > maxKept && !s.over {
		s.overflow()
	}
	switch {
	case !s.over:
		s.kept.Write(p)
	case s.file != nil:
		s.put(p)
	}
}

// overflow moves the kept output into a file.
func (s *sink) overflow() {
	s.over, s.object = true, bytes.HasPrefix(bytes.TrimSpace(s.kept.Bytes()), []byte("{"))
	all := s.kept.Bytes()
	s.kept = bytes.Buffer{}
	if s.spill != nil {
		file, err := s.spill(maxPrinted)
		if s.err = err; err == nil {
			s.file = file
			s.put(all)
			return
		}
	}
	s.kept.Write(all[:headBytes])
}

// put writes to the file until a write fails, since output after a gap is useless.
// The hook continues after a failure.
func (s *sink) put(p []byte) {
	if s.err == nil {
		_, s.err = s.file.Write(p)
		s.wrote += int64(len(p)) // close takes off what the file has dropped
	}
	s.recent = append(s.recent, p[max(0, len(p)-recentBytes):]...)
	s.recent = slices.Delete(s.recent, 0, max(0, len(s.recent)-recentBytes))
}

func (s *sink) close() {
	if s.file == nil {
		return
	}
	err := s.file.Close()
	s.err = cmp.Or(s.err, err)
	s.wrote -= s.file.Dropped()
}

// text returns the stream: all of it, or if it is too long a part that says so.
func (s *sink) text() string {
	switch {
	case !s.over:
		return s.kept.String()
	case s.file == nil:
		return fmt.Sprintf("%s\n[%d more bytes were dropped%s]", s.kept.Bytes(), s.total-headBytes, s.problem())
	}
	last, what := lastLines(s.recent, recentLines), fmt.Sprintf("last %d lines", recentLines)
	if len(last) == recentBytes {
		what = fmt.Sprintf("last %d bytes", recentBytes)
	}
	return fmt.Sprintf("[%d bytes were printed, which is too long: %s. The %s:]\n%s", s.total, s.where(), what, last)
}

// where says what there is of a stream that is too long.
func (s *sink) where() string {
	switch {
	case s.file == nil:
		return fmt.Sprintf("only the first %d are kept%s", headBytes, s.problem())
	case s.wrote < s.total:
		return fmt.Sprintf("only the first %d are in %s%s", s.wrote, s.file.Path(), s.problem())
	}
	return "all are in " + s.file.Path() + s.problem()
}

func (s *sink) problem() string {
	if s.err == nil {
		return ""
	}
	return ": " + excerpt.Line(s.err.Error(), maxTrouble)
}

// lastLines are the last n lines of a text, of which the last may have no end.
func lastLines(text []byte, n int) []byte {
	at := len(bytes.TrimSuffix(text, []byte("\n")))
	for range n {
		if at = bytes.LastIndexByte(text[:at], '\n'); at < 0 {
			return text
		}
	}
	return text[at+1:]
}
