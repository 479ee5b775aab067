package session

import (
	"os"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// What Drover itself writes ends at the limit, and says how much is missing before
// the end of the task can be seen; the record has the size of the whole file.
func TestDroppedIsSaid(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Options.Tasks.OutputLimitBytes = 100 })
	rec := r.wait(string(r.run("", watching(control.MonitorRequest{Shell: &control.ShellRequest{Line: "seq 1 1000"}})).ID))[0]
	data, err := os.ReadFile(rec.OutputFile)
	if text := string(data); err != nil || rec.Status != task.Completed || strings.Count(text, "limit of 100 bytes") != 1 || !strings.HasSuffix(text, " bytes were dropped.]\n") {
		t.Errorf("%s, %q, %v", rec.Status, text, err)
	}
	if rec.OutputBytes != int64(len(data)) {
		t.Errorf("the record has %d bytes, the file %d", rec.OutputBytes, len(data))
	}
}
