package todo

import (
	_ "embed"
	"fmt"
	"strings"
)

// VerificationAgent is the type of agent that judges finished work.
const VerificationAgent = "verification"

const nudgeFrom = 3 // fewer to-dos are a small matter

//go:embed nudge.md
var nudgeText string

// Nudge returns the note for the main agent when a change has completed the last
// open to-do, three or more are completed, and none was about verification; else
// it returns "".
func Nudge(c Change, after List) string {
	if c.Before.Status == Completed || c.After.Status != Completed || len(after.Items) < nudgeFrom ||
		len(after.Problems) > 0 {
		return ""
	}
	for _, it := range after.Items {
		if it.Status != Completed || it.verifies() {
			return ""
		}
	}
	return fmt.Sprintf(strings.TrimSpace(nudgeText), len(after.Items), VerificationAgent)
}

// verifies tells a verification step by its subject or metadata.
func (it Item) verifies() bool {
	is := func(text string) bool { return strings.Contains(strings.ToLower(text), "verif") }
	if is(it.Subject) {
		return true
	}
	for key, value := range it.Metadata {
		if is(key) || is(string(value)) {
			return true
		}
	}
	return false
}
