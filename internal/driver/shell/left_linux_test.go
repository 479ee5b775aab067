package shell_test

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/drover-dev/drover/internal/driver/shell"
)

// What helpers of a command write after its end is in the output file and is shown, and what lives
// on is ended and named in the result.
func TestLeft(t *testing.T) {
	const line = "exec > >(sleep 0.3; cat) 2>&1; sleep 100 & echo started"
	named := regexp.MustCompile(`^ended with the command: 1 process \(sleep 100, pid \d+\)$`)
	for name, shown := range map[string]*bytes.Buffer{"file": nil, "shown": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, cl := newHost(t, shell.Command{Line: line}), client()
			if shown != nil {
				cl.Tee = &shell.Tee{Stdout: shown, Stderr: shown}
			}
			_, join := launch(t, shell.New(shell.Config{}).For(cl), h)
			res, err := join()
			if err != nil || len(res.Notes) != 1 || !named.MatchString(res.Notes[0]) {
				t.Errorf("%+v, %v", res, err)
			}
			if got := h.text(); got != "started\n" || shown != nil && shown.String() != got {
				t.Errorf("output %q, shown %v", got, shown)
			}
			alone(t, h)
		})
	}
}
