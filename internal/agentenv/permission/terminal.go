package permission

import (
	"bytes"
	"encoding/json"
	"strings"
)

// typed reports whether a call of the shell wants a terminal. A program that only
// reads may do anything once keys are typed into it: a pager runs commands. So
// such a call is allowed by a rule for the whole tool only.
func typed(in map[string]json.RawMessage) bool {
	for key, raw := range in {
		if strings.EqualFold(key, "tty") && !bytes.Equal(bytes.TrimSpace(raw), []byte("false")) {
			return true
		}
	}
	return false
}
