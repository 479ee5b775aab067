package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// pulse is the interval of progress notifications while nothing happens: many clients give up a call after a minute of
// silence.
const pulse = 15 * time.Second

// progress sends progress notifications about tasks until stop, which waits for the last one. It sends none to a client
// without a progress token.
func (s *server) progress(ctx context.Context, req *mcp.CallToolRequest, refs []string) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	news := make(chan string, 1) // the newest only
	since := time.Now()          // before the first notification, after which the client may act
	var both sync.WaitGroup
	both.Go(func() { s.follow(ctx, refs, since, news) })
	both.Go(func() {
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		text := fmt.Sprintf("waiting for %s", excerpt.Line(strings.Join(refs, ", "), 200))
		for n := 1; ; n++ {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(n), Message: text,
			})
			if err != nil {
				return // the client has left, or ctx has ended
			}
			select {
			case text = <-news:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		both.Wait()
	}
}

// follow reads the events of tasks since a time.
func (s *server) follow(ctx context.Context, refs []string, since time.Time, news chan string) {
	api, err := s.link.Get(ctx)
	if err != nil {
		return // the call returns the same error
	}
	for e, err := range api.Events(ctx, 0) {
		if err != nil {
			return
		}
		if e.At.Before(since) || !meansAny(refs, e.Task) {
			continue
		}
		select {
		case <-news:
		default:
		}
		news <- happened(e) // does not block: this is the only sender
	}
}

// meansAny reports whether a ref can mean the task.
func meansAny(refs []string, r task.Record) bool {
	return slices.ContainsFunc(refs, func(ref string) bool {
		return ref != "" && (strings.HasPrefix(string(r.ID), ref) || r.Name == ref)
	})
}

func happened(e task.Event) string {
	text := line(e.Task)
	if p := e.Task.Progress; p != nil && !e.Task.Status.Terminal() {
		switch {
		case p.Summary != "":
			text += " | " + field(p.Summary)
		case p.Message != "":
			text += " | " + field(p.Message)
		case p.LastActivity != nil:
			text += fmt.Sprintf(" | %d tool uses, last %s", p.ToolUseCount, field(p.LastActivity.ToolName))
		}
	}
	return text
}
