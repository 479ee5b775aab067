package servers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/mcptool"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// madeTask stores the server at which a task is created.
func (s *Servers) madeTask(l *mcpclient.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks[l.Key()] = l.Server()
}

// OpenTask connects to the server of a task: one at which an agent of this host has created a
// task, or one with an unchanged configuration.
func (s *Servers) OpenTask(ctx context.Context, name, digest, kind string) (mcptask.Dialect, func(), error) {
	s.mu.Lock()
	server, ok := s.tasks[digest]
	s.mu.Unlock()
	if !ok {
		server, ok = s.Find(name)
	}
	if !ok {
		return nil, nil, fmt.Errorf("%w: %s", mcptask.ErrNoServer, name)
	}
	lease, err := s.Dial(ctx, name, server)
	if err != nil {
		return nil, nil, err
	}
	if lease.Key() != digest {
		lease.Release()
		return nil, nil, fmt.Errorf("%w: %s is configured in another way than when the task was made", mcptask.ErrNoServer,
			name)
	}
	conn := func(ctx context.Context) (*mcpclient.Conn, error) {
		c, err := lease.Conn(ctx)
		if errors.Is(err, mcpclient.ErrGivenUp) { // a new connection may succeed: the task may still be there
			if again, bad := s.Dial(ctx, name, server); bad == nil {
				again.Release()
			}
		}
		return c, err
	}
	if kind == mcptask.Extension {
		return mcpclient.NewTasksV2(conn), lease.Release, nil
	}
	d := mcpclient.NewTasksV1(conn)
	return d, func() {
		d.Close()
		lease.Release()
	}, nil
}

// runsAsTask reports whether a call of a tool is to run as a task. The current answer of the
// server counts, not that at the start of the conversation.
func (s *Servers) runsAsTask(c *mcpclient.Conn, tool string) bool {
	can := support(c, tool)
	switch cmp.Or(s.cfg.Tasks, TasksRequired) {
	case TasksOff:
		return false
	case TasksAlways:
		return can != mcpclient.TaskForbidden && mcpclient.MakesTasks(c)
	}
	return can == mcpclient.TaskRequired && mcpclient.MakesTasks(c)
}

// allowsTask reports whether a server may make a task of a call by itself.
func (s *Servers) allowsTask(c *mcpclient.Conn) bool {
	return cmp.Or(s.cfg.Tasks, TasksRequired) != TasksOff && c.ExtendsTasks()
}

// needsTask interprets the answer to an ordinary call, which may mean that the tool runs as a
// task only.
func needsTask(conn *mcpclient.Conn, tool string, raw json.RawMessage, err error) (json.RawMessage, string, error) {
	if !mcpclient.WantsExtension(err) &&
		(support(conn, tool) != mcpclient.TaskRequired || !mcpclient.NeedsTask(raw, err)) {
		return raw, "", err
	}
	var says string
	if err != nil {
		says = err.Error()
	} else {
		says, _ = mcptool.Render(raw)
	}
	return nil, "", &toolkit.Refusal{
		Text: fmt.Sprintf(
			"%s runs as a task only, and no task is made of it here: the setting mcp.tasks is off, or the server makes none. It says: %s",
			tool,
			excerpt.Line(says, 500),
		),
	}
}

// support returns whether a tool can run as a task, according to the server now.
func support(c *mcpclient.Conn, tool string) string {
	for _, t := range c.Tools() {
		if t.Name == tool {
			return t.TaskSupport
		}
	}
	return mcpclient.TaskForbidden
}

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
