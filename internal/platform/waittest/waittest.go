// Package waittest is how tests wait.
//
// A test waits for an event where there is one, and [Context] bounds that. Of
// processes, files and sessions that are not the test's own there is none:
// [Until] asks again and again. It promises an end, and does not say what a
// test should do about it. Production code does not import it.
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
