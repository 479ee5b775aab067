package lifecycle

import (
	"fmt"
	"slices"

	"github.com/drover-dev/drover/task"
)

// Bounds of a record. It is in memory, in listings and in every event of its task, so that
// what is long in it is shortened.
const (
	MaxRecordText  = 4 << 10  // of a prompt, a command, and each text about progress
	MaxRecordError = 16 << 10 // of an error

	MaxRecordNotes     = 8  // each of [MaxRecordText]
	MaxRecordSurvivors = 64 // processes; the receipt of the stop names all
	MaxRecordLeft      = 64 // tasks that an agent left at its end
)

// MaxRecordPrompt bounds the prompt in a record, in bytes: it is written with each event. The
// whole is the first message of the transcript of an agent, and the input of a driver.
const MaxRecordPrompt = MaxRecordText

// ShortPrompt is a prompt as a record has it: of a long one the beginning, and how much
// more there was.
func ShortPrompt(text string) string { return Shortened(text, MaxRecordPrompt) }

// Shortened is a text of at most so many bytes: of a longer one the beginning, and how much
// more there was.
func Shortened(text string, most int) string {
	const mark = 48 // bytes, at most
	if len(text) <= most {
		return text
	}
	head := beginning(text, most-mark)
	return fmt.Sprintf("%s… [and %d bytes more]", head, len(text)-len(head))
}

// Short is a record as it is kept in memory and repeated in events: with the beginning
// of a long prompt and command, and of a long description of an older build.
func Short(r task.Record) task.Record {
	r.Prompt, r.Description = ShortPrompt(r.Prompt), Shortened(r.Description, task.MaxDescription)
	if n := len(r.Command); n > MaxRecordText {
		r.Command, r.CommandBytes = Shortened(r.Command, MaxRecordText), n
	}
	return r
}

// Weight is about how much memory the texts of a record take.
func Weight(r *task.Record) int {
	n := 0
	for _, text := range [...]string{
		r.Name, r.Description, r.Prompt, r.Command, r.Cwd, r.Error, r.OutputFile, r.Key, r.ToolUseID, r.Model,
	} {
		n += len(text)
	}
	for _, note := range slices.Concat(r.Notes, r.Made) {
		n += len(note)
	}
	n += len(r.Checkpoint)
	if r.Cause != nil {
		n += len(r.Cause.Detail)
	}
	if p := r.Progress; p != nil {
		n += len(p.Message) + len(p.Summary)
		for _, a := range p.RecentActivities {
			n += len(a.ToolName) + len(a.Input)
		}
		for _, s := range p.Steps {
			n += len(s.ID) + len(s.Error) + stepWeight
			for _, id := range s.Needs {
				n += len(id)
			}
		}
	}
	for _, l := range r.LeftTasks {
		n += len(l.About) + len(l.OutputFile) + stepWeight
	}
	if w := r.Worktree; w != nil {
		n += len(w.Path) + len(w.Text)
	}
	return n
}

// stepWeight is the approximate size of a [Step] without its texts.
const stepWeight = 128

// shortProgress is the progress with texts of bounded length.
func shortProgress(p task.Progress) task.Progress {
	p.Message, p.Summary = Shortened(p.Message, MaxRecordText), Shortened(p.Summary, MaxRecordText)
	p.Phase = Shortened(p.Phase, MaxRecordText)
	if m := p.MCPTask; m != nil && len(m.Message) > MaxRecordText {
		state := *m
		state.Message = Shortened(m.Message, MaxRecordText)
		p.MCPTask = &state
	}
	return p
}

// shortCause is the cause with a detail of bounded length.
func shortCause(c *task.Cause) *task.Cause {
	if c == nil || len(c.Detail) <= MaxRecordText {
		return c
	}
	why := *c
	why.Detail = Shortened(c.Detail, MaxRecordText)
	return &why
}

// shortNotes is the first notes with texts of bounded length.
func shortNotes(notes []string) []string {
	var out []string
	for _, n := range notes[:min(len(notes), MaxRecordNotes)] {
		out = append(out, Shortened(n, MaxRecordText))
	}
	return out
}

// shortParked is what holds a task, with a text of bounded length.
func shortParked(p *task.Parked) *task.Parked {
	if p == nil {
		return nil
	}
	short := *p
	short.Why = Shortened(p.Why, MaxRecordText)
	return &short
}
