package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/mcpclient"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/mcptool"
	"github.com/drover-dev/drover/task"
)

// Which tools of MCP servers run as tasks.
const (
	MCPTasksRequired = "required" // those that run in no other way
	MCPTasksAlways   = "always"   // those that can, too
	MCPTasksOff      = "off"      // none: the call is made as usual
)

// mcpTasks are the servers that tasks were made at. Its zero value is ready.
type mcpTasks struct {
	mu   sync.Mutex
	seen map[string]mcpclient.Server // by key; guarded by mu
}

func (m *mcpTasks) see(key string, s mcpclient.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[string]mcpclient.Server{}
	}
	m.seen[key] = s
}

func (m *mcpTasks) find(key string) (mcpclient.Server, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.seen[key]
	return s, ok
}

// useMCPTasks lets tasks of MCP servers be followed, those of an earlier host too.
func (s *Session) useMCPTasks() {
	s.kinds.UseMCPTasks(mcptask.Config{Open: s.openMCPTask, AskWait: s.cfg.Agents.AskWait})
}

// openMCPTask reaches the server of a task: one that an agent of this host has used,
// or that is configured now as it was then.
func (s *Session) openMCPTask(ctx context.Context, name, digest string) (mcptask.Dialect, func(), error) {
	server, ok := s.mcpTasks.find(digest)
	if !ok {
		server, ok = s.configured(name)
	}
	if !ok {
		return nil, nil, fmt.Errorf("%w: %s", mcptask.ErrNoServer, name)
	}
	pool := s.cfg.Agents.MCP.Pool
	lease, err := pool.Use(ctx, name, server)
	if err != nil {
		return nil, nil, err
	}
	if lease.Key() != digest {
		lease.Release()
		return nil, nil, fmt.Errorf("%w: %s is configured in another way than when the task was made", mcptask.ErrNoServer, name)
	}
	d := mcpclient.NewTasksV1(func(ctx context.Context) (*mcpclient.Conn, error) {
		c, err := lease.Conn(ctx)
		if errors.Is(err, mcpclient.ErrGivenUp) { // to use it anew gives it another chance: the task may be there still
			if again, bad := pool.Use(ctx, name, server); bad == nil {
				again.Release()
			}
		}
		return c, err
	})
	return d, func() {
		d.Close()
		lease.Release()
	}, nil
}

// configured finds a server of the session.
func (s *Session) configured(name string) (mcpclient.Server, bool) {
	if s.cfg.Agents.MCP != nil {
		for _, one := range s.cfg.Agents.MCP.Servers {
			if one.Name == name {
				return one.Server, true
			}
		}
	}
	return mcpclient.Server{}, false
}

// runsAsTask reports whether a call of a tool is to be made as a task. What the
// server says now counts, and not what was read when the conversation began.
func (s *Session) runsAsTask(c *mcpclient.Conn, tool string) bool {
	can := support(c, tool)
	switch cmp.Or(s.cfg.Agents.MCP.Tasks, MCPTasksRequired) {
	case MCPTasksOff:
		return false
	case MCPTasksAlways:
		return can != mcpclient.TaskForbidden && mcpclient.MakesTasks(c)
	}
	return can == mcpclient.TaskRequired && mcpclient.MakesTasks(c)
}

// mcpTask makes a call of a tool as a task, if it is to be one; else handled is
// false, and nothing was done. The text is for the model: that the task was begun,
// or, where nothing runs in the background, what it gave.
func (k *kit) mcpTask(ctx context.Context, l *mcpclient.Lease, conn *mcpclient.Conn, tool string, c agent.Call, args json.RawMessage) (text string, handled bool, err error) {
	s := k.me.s
	if !s.runsAsTask(conn, tool) {
		return "", false, nil
	}
	rt := &runtime{self: k.me, learned: func(id task.ID) { k.reminders.Know(taskList, string(id)) }}
	alone := s.cfg.Limits.NoBackground || rt.host != nil && !s.cfg.Limits.NestedBackground
	s.mcpTasks.see(l.Key(), l.Server())
	made := make(chan string, 1)
	w := s.kinds.MCPTask(func(immediate string) { made <- immediate },
		mcptask.Call{Server: l.Name(), Digest: l.Key(), Tool: tool, Args: args, Alone: alone})
	spec := rt.spec(c.ID, false)
	spec.Input, spec.AgentType, spec.Prompt = w.Input, mcptask.AgentType, string(args)
	spec.Description = firstLine(fmt.Sprintf("%s of MCP server %s", tool, l.Name()), 80)
	spec.Keep = !alone && l.Server().Kind() == mcpclient.HTTP // it does not live in this host
	rec, err := s.sup.Start(ctx, w.Driver, spec)
	if err != nil {
		return "", true, &mcptool.Refusal{Text: err.Error()}
	}
	if alone {
		text, err = rt.awaitMCPTask(ctx, rec)
		return text, true, err
	}
	select {
	case immediate := <-made:
		rec, err = s.sup.Promote(ctx, rec.ID)
		var ended *task.MoveError
		if errors.As(err, &ended) {
			break
		}
		if err != nil {
			return "", true, errors.Join(err, rt.interrupt(ctx, rec.ID))
		}
		rt.know(rec.ID)
		return begunMCPTask(rec, immediate), true, nil
	case <-s.sup.Done(rec.ID):
	case <-ctx.Done():
		return "", true, cmp.Or(rt.interrupt(ctx, rec.ID), context.Cause(ctx))
	}
	text, err = rt.awaitMCPTask(ctx, rec)
	return text, true, err
}

// needsTask is the answer to a plain call, or what it means that the tool runs as a
// task only.
func needsTask(conn *mcpclient.Conn, tool string, raw json.RawMessage, err error) (json.RawMessage, string, error) {
	if support(conn, tool) != mcpclient.TaskRequired || !mcpclient.NeedsTask(raw, err) {
		return raw, "", err
	}
	var says string
	if err != nil {
		says = err.Error()
	} else {
		says, _ = mcptool.Render(raw)
	}
	return nil, "", &mcptool.Refusal{Text: fmt.Sprintf("%s runs as a task only, and no task is made of it here: the setting mcp.tasks is off, or the server makes none. It says: %s",
		tool, excerpt.Line(says, 500))}
}

// support is how a tool may be called as a task, as the server says now.
func support(c *mcpclient.Conn, tool string) string {
	for _, t := range c.Tools() {
		if t.Name == tool {
			return t.TaskSupport
		}
	}
	return mcpclient.TaskForbidden
}

// begunMCPTask is what the model is told of a task that goes on.
func begunMCPTask(rec task.Record, immediate string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "MCP task started in background.\nAgent ID: %s\nOutput file: %s\n", rec.ID, rec.OutputFile)
	if immediate != "" {
		fmt.Fprintf(&b, "The server says: %s\n", excerpt.Line(immediate, 2000))
	}
	fmt.Fprintf(&b, "You will be told when %s ends, and if the server asks something; go on with other work. TaskOutput shows how far it is, TaskStop cancels it.", rec.ID)
	return b.String()
}

// awaitMCPTask waits for the end of a task in the foreground, or for its move to the
// background by somebody.
func (rt *runtime) awaitMCPTask(ctx context.Context, rec task.Record) (string, error) {
	s := rt.s
	await := s.sup.Await
	if rt.host != nil {
		await = rt.host.Await
	}
	got, err := await(ctx, rec.ID)
	if err != nil {
		return "", cmp.Or(rt.interrupt(ctx, rec.ID), context.Cause(ctx))
	}
	if !got.Status.Terminal() {
		rt.know(got.ID)
		return begunMCPTask(got, ""), nil
	}
	text, err := s.log.AnswerExcerpt(ctx, got.Run)
	if err != nil {
		return "", err
	}
	text, _ = excerpt.Tail(excerpt.Plain(text), s.cfg.Limits.OutputChars, got.OutputFile)
	if got.Status == task.Completed {
		return cmp.Or(text, "(no output)"), nil
	}
	why := cmp.Or(got.Error, "it was stopped")
	if c := got.Cause; got.Error == "" && c != nil {
		why = strings.TrimSuffix(fmt.Sprintf("it was stopped by %s (%s): %s", c.Actor, c.Reason, c.Detail), ": ")
	}
	return "", &mcptool.Refusal{Text: strings.TrimSpace(fmt.Sprintf("The MCP task %s did not complete: %s\n\n%s", got.ID, excerpt.Line(why, 500), text))}
}
