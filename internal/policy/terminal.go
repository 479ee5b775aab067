package policy

import (
	"bytes"
	"encoding/json"
	"strings"
)

// typed reports whether a call of the shell wants a terminal. A program that only
// reads may do anything once keys are typed into it: a pager runs commands. So
// such a call is allowed by a rule for the whole tool only.
func typed(in map[string]json.RawMessage) bool { return flagged(in, "tty") }

// flagged reports whether a field is set, in any spelling of its name and to anything but false.
func flagged(in map[string]json.RawMessage, name string) bool {
	for key, raw := range in {
		if strings.EqualFold(key, name) && !bytes.Equal(bytes.TrimSpace(raw), []byte("false")) {
			return true
		}
	}
	return false
}
