package task

import (
	"fmt"
)

// Bounds of the fields of a [Spec], in bytes.
const (
	MaxName        = 128
	MaxDescription = 4 << 10
	MaxCommand     = 1 << 20 // with its arguments
	MaxSpecPrompt  = 16 << 20
	MaxInput       = 24 << 20 // of a driver; it repeats the prompt
	MaxCheckpoint  = 4 << 20
	MaxWord        = 1 << 10 // of a model, a type, a mode, a key and the like
	MaxPath        = 4096    // the longest path that Linux takes
)

// SizeError says that a part of a [Spec] is longer than its limit, in bytes, and how to fix it.
type SizeError struct {
	What  string
	Bytes int
	Limit int
	Fix   string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("the %s has %d bytes, more than the limit of %d (%s)", e.What, e.Bytes, e.Limit, e.Fix)
}

// Check refuses a field that is too long, with a [*SizeError].
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
