package servers

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
)

// Whatever a server tells of its progress is one short line.
func TestProgressText(t *testing.T) {
	for want, p := range map[string]mcpclient.Progress{
		"":                  {},
		"40%":               {Done: 2, Total: 5},
		"rows (99%)":        {Done: 999, Total: 1000, Message: "rows"},
		"rows (100%)":       {Done: 7, Total: 5, Message: "rows"},
		"0%":                {Done: -3, Total: 5},
		"rows (3.5)":        {Done: 3.5, Message: "rows"},
		"rows":              {Message: " rows\n"},
		"two lines, escape": {Message: "two\nlines,\x1b[31m escape"},
	} {
		if got := progressText(p); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
	if got := progressText(mcpclient.Progress{Message: strings.Repeat("x", 1<<20)}); len(got) > 2*progressChars {
		t.Errorf("%d bytes", len(got))
	}
}
