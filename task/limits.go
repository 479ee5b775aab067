package task

import (
	"fmt"
)

// Bounds of what a task is started with, in bytes.
const (
	MaxName        = 128
	MaxDescription = 4 << 10
	MaxCommand     = 1 << 20 // with its arguments
	MaxSpecPrompt  = 16 << 20
	MaxInput       = 24 << 20 // of a driver; a prompt stands in it again
	MaxCheckpoint  = 4 << 20
	MaxWord        = 1 << 10 // of a model, a type, a mode, a key and the like
	MaxPath        = 4096    // the longest path that Linux takes
)

// Bounds of a record. It is in memory, in listings and in every event of its task, so that
// what is long in it is shortened.
const (
	MaxRecordText  = 4 << 10  // of a prompt, a command, and each text about progress
	MaxRecordError = 16 << 10 // of an error

	MaxRecordSurvivors = 64 // processes; the receipt of the stop names all
)

// SizeError is a part of a [Spec] that is too long.
type SizeError struct {
	What  string
	Bytes int
	Limit int
	Mend  string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("the %s has %d bytes, more than the limit of %d (%s)", e.What, e.Bytes, e.Limit, e.Mend)
}

// Check refuses what is too long, with a [*SizeError].
func (s Spec) Check() error {
	for _, f := range [...]SizeError{
		{"name", len(s.Name), MaxName, "shorten it; a description may be longer"},
		{"description", len(s.Description), MaxDescription, "shorten it; it is for display only"},
		{"command", len(s.Command), MaxCommand, "write it to a file and run that"},
		{"prompt", len(s.Prompt), MaxSpecPrompt, "write it to a file and name the file in the prompt"},
		{"working folder", len(s.Cwd), MaxPath, "use a shorter path"},
		{"model", len(s.Model), MaxWord, "give the name of a model"},
		{"agent type", len(s.AgentType), MaxWord, "see `drover agents`"},
		{"permission mode", len(s.Mode), MaxWord, "give the name of a mode"},
		{"tool use ID", len(s.ToolUseID), MaxWord, "give a shorter one"},
		{"key", len(s.Key), MaxWord, "give a shorter one"},
		{"input", len(s.Input), MaxInput, "write it to a file and name the file"},
	} {
		if f.Bytes > f.Limit {
			return &f
		}
	}
	return nil
}

// Short is the record as it is kept in memory and repeated in events: with the beginning
// of a long prompt and command, and of a long description of an older build.
func (r Record) Short() Record {
	r.Prompt, r.Description = ShortPrompt(r.Prompt), Shortened(r.Description, MaxDescription)
	if n := len(r.Command); n > MaxRecordText {
		r.Command, r.CommandBytes = Shortened(r.Command, MaxRecordText), n
	}
	return r
}

// Weight is about how much memory the texts of a record take.
func (r *Record) Weight() int {
	n := len(
		r.Name,
	) + len(
		r.Description,
	) + len(
		r.Prompt,
	) + len(
		r.Command,
	) + len(
		r.Cwd,
	) + len(
		r.Error,
	) + len(
		r.Checkpoint,
	) + len(
		r.OutputFile,
	) +
		len(
			r.Key,
		) + len(
		r.ToolUseID,
	) + len(
		r.Model,
	)
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
		}
	}
	if w := r.Worktree; w != nil {
		n += len(w.Path) + len(w.Text)
	}
	return n
}

// stepWeight is about what a [Step] takes beside its texts.
const stepWeight = 128

// short is the progress with texts of bounded length.
func (p Progress) short() Progress {
	p.Message, p.Summary, p.Phase = Shortened(
		p.Message,
		MaxRecordText,
	), Shortened(
		p.Summary,
		MaxRecordText,
	), Shortened(
		p.Phase,
		MaxRecordText,
	)
	if m := p.MCPTask; m != nil && len(m.Message) > MaxRecordText {
		state := *m
		state.Message = Shortened(m.Message, MaxRecordText)
		p.MCPTask = &state
	}
	return p
}

// short is the cause with a detail of bounded length.
func (c *Cause) short() *Cause {
	if c == nil || len(c.Detail) <= MaxRecordText {
		return c
	}
	why := *c
	why.Detail = Shortened(c.Detail, MaxRecordText)
	return &why
}
