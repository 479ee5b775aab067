// Package waittest helps tests to wait.
//
// A test waits for an event if there is one; [Context] bounds that. [Until] polls for
// conditions of other processes, files and sessions, which send no event. Both end
// within a time limit. Production code does not import the package.
package waittest

import (
	"context"
	"testing"
	"time"
)

// Until asks until the answer is yes, which it reports, or the time is up.
func Until(d time.Duration, yes func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); ; {
		if yes() {
			return true
		}
		if now := <-tick.C; now.After(end) {
			return false
		}
	}
}

// Context ends after d, or with the cleanups of the test.
func Context(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
