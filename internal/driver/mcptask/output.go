package mcptask

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Bounds of the data that a server can make us write and keep.
const (
	maxLineBytes   = 4 << 10 // of one message of a server
	maxStatusBytes = 1 << 20 // of all lines about the way of a task
	maxAnswerBytes = 1 << 20 // of an answer that goes with the end; the output has all of it
	maxWarnings    = 5
)

// paper is the output of a task: a line for each thing that happens, and then
// the answer.
type paper struct {
	to   io.Writer
	size int
	full bool
	err  error // the first of writing
}

// line writes one line. A server that has too much to say is cut short, once.
func (p *paper) line(format string, args ...any) {
	text := oneLine(fmt.Sprintf(format, args...)) + "\n"
	switch {
	case p.full:
		return
	case p.size+len(text) > maxStatusBytes:
		p.full, text = true, "further messages are left out\n"
	}
	p.size += len(text)
	p.write(text)
}

func (p *paper) write(text string) {
	if _, err := io.WriteString(p.to, text); err != nil && p.err == nil {
		p.err = fmt.Errorf("write output: %w", err)
	}
}

// lastLine is the last line of a file, or empty. The file is output of our own.
func lastLine(path string) string {
	f, err := saferoot.Near(path).Open(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	tail := make([]byte, min(size, maxLineBytes+2))
	n, _ := f.ReadAt(tail, size-int64(len(tail))) // a partial read suffices
	text := strings.TrimSuffix(string(tail[:n]), "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// answer writes what the task gave.
func (p *paper) answer(text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		p.write("\n" + text + "\n")
	}
}

// oneLine makes a message of a server fit for a line.
func oneLine(text string) string {
	if len(text) > maxLineBytes {
		text = strings.ToValidUTF8(text[:maxLineBytes], "") + "…"
	}
	return strings.Join(strings.Fields(text), " ")
}

// shownState is a state as a line.
func shownState(s mcpclient.TaskState) string {
	text := s.Word
	if m := oneLine(s.Message); m != "" {
		text = strings.TrimPrefix(text+": "+m, ": ")
	}
	if s.Progress > 0 || s.Total > 0 {
		text += fmt.Sprintf(" (%v", s.Progress)
		if s.Total > 0 {
			text += fmt.Sprintf(" of %v", s.Total)
		}
		text += ")"
	}
	return strings.TrimSpace(text)
}

// note updates the shown progress of the task from a state, and adds the news to the
// output.
func (r *run) note(s mcpclient.TaskState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.shown
	changed := s.Word != "" && s.Word != m.Status || s.Message != "" && oneLine(s.Message) != m.Message ||
		s.Progress != 0 && s.Progress != m.Progress
	if s.Word != "" {
		m.Status, m.Message = oneLine(s.Word), oneLine(s.Message)
	} else if s.Message != "" {
		m.Message = oneLine(s.Message)
	}
	if s.Progress != 0 || s.Total != 0 {
		m.Progress, m.Total = s.Progress, s.Total
	}
	if !s.Created.IsZero() {
		m.Created = s.Created
	}
	if s.Updated.After(m.Updated) {
		m.Updated = s.Updated
	}
	if changed {
		if line := shownState(s); line != r.seen {
			r.out.line("%s", line)
		}
		r.seen = ""
		r.publish()
	}
}

// warn notes that something was not as it should be.
func (r *run) warn(format string, args ...any) {
	text := oneLine(fmt.Sprintf(format, args...))
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.shown.Warnings, text) {
		return
	}
	all := append(slices.Clone(r.shown.Warnings), text)
	r.shown.Warnings = all[max(0, len(all)-maxWarnings):]
	r.out.line("warning: %s", text)
	r.publish()
}

// say writes a line of our own into the output.
func (r *run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.line(format, args...)
}

// unwritten is the first error of writing output.
func (r *run) unwritten() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.err
}

// publish makes the progress known. The record gets a copy of it, which later changes
// do not reach. The caller holds mu.
func (r *run) publish() {
	m := r.shown
	s := mcpclient.TaskState{Word: m.Status, Message: m.Message, Progress: m.Progress, Total: m.Total}
	r.h.Progress(task.Progress{Message: cmp.Or(shownState(s), "asking the server"), MCPTask: &m})
}

// answerText is what goes with the end of a task.
func answerText(text string, path string) string {
	if len(text) <= maxAnswerBytes {
		return text
	}
	cut := strings.ToValidUTF8(text[:maxAnswerBytes], "")
	return fmt.Sprintf("%s\n… [%d bytes more; all of it is in %s]", cut, len(text)-len(cut), path)
}
