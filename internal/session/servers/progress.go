package servers

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

const (
	// progressEvery is how often the progress of a call is shown: each time is an event in the
	// log and a line in the output of the agent.
	progressEvery = 2 * time.Second
	progressChars = 120 // of the message of a server
)

// reporting shows the progress of a call to those who follow the agent. A report that has not changed
// is not shown again.
func reporting(ctx context.Context) func(mcpclient.Progress) {
	last := ""
	return func(p mcpclient.Progress) {
		if text := progressText(p); text != last {
			last = text
			agent.ReportProgress(ctx, text)
		}
	}
}

// progressText is the message of the server and the percentage, or the steps so far where their
// number is not known.
func progressText(p mcpclient.Progress) string {
	far := ""
	switch {
	case p.Total > 0:
		far = fmt.Sprintf("%.0f%%", math.Floor(100*min(max(p.Done/p.Total, 0), 1)))
	case p.Done > 0:
		far = fmt.Sprintf("%g", p.Done)
	}
	text := excerpt.Line(p.Message, progressChars)
	switch {
	case text == "":
		return far
	case far == "":
		return text
	}
	return fmt.Sprintf("%s (%s)", text, far)
}
