package acpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/acpwire"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// pageSize is how many sessions a page of a listing has.
const pageSize = 100

// openingOf returns the session that a request names, with the folders and servers of the client.
func openingOf(r acp.ResumeSessionRequest) (Opening, error) {
	for _, dir := range append([]string{r.Cwd}, r.AdditionalDirectories...) {
		if !filepath.IsAbs(dir) {
			return Opening{}, invalid("open a session: folder %.200q is not absolute", dir)
		}
	}
	servers, err := serversOf(r.McpServers)
	return Opening{Folder: filepath.Clean(r.Cwd), Session: task.ID(r.SessionId), Dirs: r.AdditionalDirectories,
		MCP: servers}, err
}

// mcpServer is a server in the form of .mcp.json.
type mcpServer struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// serversOf returns the MCP servers of the client in the form of .mcp.json; empty: none.
func serversOf(list []acp.McpServer) (string, error) {
	headers := func(list []acp.HttpHeader) map[string]string {
		all := map[string]string{}
		for _, h := range list {
			all[h.Name] = h.Value
		}
		return all
	}
	all := map[string]mcpServer{}
	for _, m := range list {
		var name string
		var one mcpServer
		switch {
		case m.Stdio != nil:
			name, one = m.Stdio.Name, mcpServer{Command: m.Stdio.Command, Args: m.Stdio.Args, Env: map[string]string{}}
			for _, v := range m.Stdio.Env {
				one.Env[v.Name] = v.Value
			}
		case m.Http != nil:
			name, one = m.Http.Name, mcpServer{Type: "http", URL: m.Http.Url, Headers: headers(m.Http.Headers)}
		case m.Sse != nil:
			name, one = m.Sse.Name, mcpServer{Type: "sse", URL: m.Sse.Url, Headers: headers(m.Sse.Headers)}
		default:
			return "", invalid("open a session: an MCP server is reached over stdio, http or sse")
		}
		if _, twice := all[name]; twice {
			return "", invalid("open a session: two MCP servers have the name %.80q", name)
		}
		all[name] = one
	}
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(map[string]any{"mcpServers": all})
	return string(text), err
}

// newSession opens a new session.
func (s *server) newSession(ctx context.Context, p acp.NewSessionRequest) (any, error) {
	return s.opened(ctx, acp.ResumeSessionRequest{Cwd: p.Cwd, AdditionalDirectories: p.AdditionalDirectories,
		McpServers: p.McpServers})
}

// fork opens a new session that continues with the conversation of another one.
func (s *server) fork(ctx context.Context, p forkRequest) (any, error) {
	r := acp.ResumeSessionRequest(p)
	o, err := openingOf(r)
	if err != nil {
		return nil, err
	}
	copied, err := s.cfg.Host.Fork(ctx, o.Folder, o.Session)
	if err != nil {
		return nil, err
	}
	r.SessionId = acp.SessionId(copied)
	return s.opened(ctx, r)
}

// opened opens a session that the client does not know yet.
func (s *server) opened(ctx context.Context, r acp.ResumeSessionRequest) (any, error) {
	one, o, err := s.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return acpwire.Then{Do: one.follow, Result: acp.NewSessionResponse{SessionId: one.name(), Modes: o.modes(),
		Models: o.modelState(), ConfigOptions: o.options()}}, nil
}

// load opens an earlier session and shows its conversation. For an open session it shows it again.
func (s *server) load(ctx context.Context, p acp.LoadSessionRequest) (any, error) {
	return s.reopen(ctx, acp.ResumeSessionRequest(p), true)
}

// resume opens an earlier session without its conversation.
func (s *server) resume(ctx context.Context, p acp.ResumeSessionRequest) (any, error) {
	return s.reopen(ctx, p, false)
}

func (s *server) reopen(ctx context.Context, r acp.ResumeSessionRequest, replay bool) (any, error) {
	then := acpwire.Then{Do: func() {}}
	var o offered
	one, err := s.find(r.SessionId)
	if err == nil {
		o, err = one.offer(ctx)
	} else if one, o, err = s.open(ctx, r); err == nil {
		then.Do = one.follow
	}
	if err != nil {
		return nil, err
	}
	if replay {
		if err := one.replay(); err != nil {
			s.warn("show the conversation of session %s: %v", one.name(), err)
		}
	}
	then.Result = acp.ResumeSessionResponse{Modes: o.modes(), Models: o.modelState(), ConfigOptions: o.options()}
	return then, nil
}

// open opens a session and keeps it.
func (s *server) open(ctx context.Context, r acp.ResumeSessionRequest) (*session, offered, error) {
	o, err := openingOf(r)
	if err != nil {
		return nil, offered{}, err
	}
	s.mu.Lock()
	if len(s.sessions)+s.opening >= maxSessions {
		s.mu.Unlock()
		return nil, offered{}, acpwire.Refuse(acp.NewInternalError, "open a session: %d are open (close one)", maxSessions)
	}
	s.opening++
	s.mu.Unlock()
	one, err := newSession(ctx, s, o)
	var now offered
	if err == nil {
		if now, err = one.showSettings(ctx); err != nil {
			_ = one.close() // the first error counts
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if err != nil {
		return nil, now, err
	}
	s.sessions[one.name()] = one
	return one, now, nil
}

// list lists sessions, newest first.
func (s *server) list(ctx context.Context, p acp.ListSessionsRequest) (any, error) {
	folder := ""
	if p.Cwd != nil {
		if folder = *p.Cwd; !filepath.IsAbs(folder) {
			return nil, invalid("list sessions: cwd %.200q is not absolute", folder)
		}
	}
	all, err := s.cfg.Host.Sessions(ctx, folder)
	if err != nil {
		return nil, err
	}
	if p.Cursor != nil {
		at := slices.IndexFunc(all, func(i control.Info) bool { return string(i.Session) == *p.Cursor })
		if at < 0 {
			return nil, invalid("list sessions: cursor %.80q is unknown", *p.Cursor)
		}
		all = all[at+1:]
	}
	out := acp.ListSessionsResponse{Sessions: []acp.SessionInfo{}}
	for i, info := range all {
		if i == pageSize {
			out.NextCursor = acp.Ptr(string(all[i-1].Session))
			break
		}
		one := acp.SessionInfo{SessionId: acp.SessionId(info.Session), Cwd: info.Project}
		if info.Title != "" {
			one.Title = &info.Title
		}
		at := info.StartTime
		if info.EndTime != nil {
			at = *info.EndTime
		}
		one.UpdatedAt = acp.Ptr(at.UTC().Format(time.RFC3339))
		out.Sessions = append(out.Sessions, one)
	}
	return out, nil
}

// delete removes the files of a session. It closes an open session first.
func (s *server) delete(ctx context.Context, p deleteRequest) (any, error) {
	if one, err := s.take(p.SessionId); err == nil {
		if err := one.close(); err != nil {
			return nil, err
		}
	}
	return nil, s.cfg.Host.Remove(ctx, task.ID(p.SessionId))
}

// title shows the title that the session has since its first prompt.
func (s *session) title(prompt string) {
	name := s.open.Entitle(prompt)
	if name == "" {
		return
	}
	s.update(acp.SessionUpdate{SessionInfoUpdate: &acp.SessionSessionInfoUpdate{Title: &name,
		UpdatedAt: acp.Ptr(time.Now().UTC().Format(time.RFC3339))}})
}

// plan shows the to-dos of the session.
func (s *session) plan() {
	all, err := s.open.Todos(s.ctx)
	if err != nil {
		s.warn("read the to-dos", err)
		return
	}
	plan := []acp.PlanEntry{}
	for _, one := range all.Items {
		plan = append(plan, acp.PlanEntry{Content: one.Title(), Priority: acp.PlanEntryPriorityMedium,
			Status: acp.PlanEntryStatus(cmp.Or(one.Status, todo.Pending))})
	}
	s.update(acp.UpdatePlan(plan...))
}

// used shows how much of the model's window is used, and the cost of the session.
func (s *session) used() {
	u := s.open.Usage()
	if u.Window <= 0 {
		return
	}
	update := &acp.SessionUsageUpdate{Used: int(u.Tokens), Size: int(u.Window)}
	if u.CostKnown {
		update.Cost = &acp.Cost{Amount: u.USD, Currency: "USD"}
	}
	s.update(acp.SessionUpdate{UsageUpdate: update})
}
