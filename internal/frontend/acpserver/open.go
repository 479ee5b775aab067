package acpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// pageOf is how many sessions a listing has.
const pageOf = 100

// place says where a session is opened, and with what of the client's.
type place struct {
	cwd     string
	dirs    []string
	servers []acp.McpServer
}

// opening is the place as a host needs it.
func (p place) opening(id acp.SessionId) (Opening, error) {
	for _, dir := range append([]string{p.cwd}, p.dirs...) {
		if !filepath.IsAbs(dir) {
			return Opening{}, refuse(acp.NewInvalidParams, fmt.Sprintf("open a session: folder %.200q is not absolute", dir))
		}
	}
	o := Opening{Folder: filepath.Clean(p.cwd), Session: task.ID(id), Dirs: p.dirs}
	var err error
	o.MCP, err = serversOf(p.servers)
	return o, err
}

// serversOf are the MCP servers of the client in the form of .mcp.json; empty: there are none.
func serversOf(list []acp.McpServer) (string, error) {
	type server struct {
		Type    string            `json:"type,omitempty"`
		Command string            `json:"command,omitempty"`
		Args    []string          `json:"args,omitempty"`
		Env     map[string]string `json:"env,omitempty"`
		URL     string            `json:"url,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
	}
	headers := func(list []acp.HttpHeader) map[string]string {
		all := map[string]string{}
		for _, h := range list {
			all[h.Name] = h.Value
		}
		return all
	}
	all := map[string]server{}
	add := func(name string, one server) error {
		if _, twice := all[name]; twice {
			return refuse(acp.NewInvalidParams, fmt.Sprintf("open a session: two MCP servers have the name %.80q", name))
		}
		all[name] = one
		return nil
	}
	for _, m := range list {
		var err error
		switch {
		case m.Stdio != nil:
			env := map[string]string{}
			for _, v := range m.Stdio.Env {
				env[v.Name] = v.Value
			}
			err = add(m.Stdio.Name, server{Command: m.Stdio.Command, Args: m.Stdio.Args, Env: env})
		case m.Http != nil:
			err = add(m.Http.Name, server{Type: "http", URL: m.Http.Url, Headers: headers(m.Http.Headers)})
		case m.Sse != nil:
			err = add(m.Sse.Name, server{Type: "sse", URL: m.Sse.Url, Headers: headers(m.Sse.Headers)})
		default:
			err = refuse(acp.NewInvalidParams, "open a session: an MCP server is reached over stdio, http or sse")
		}
		if err != nil {
			return "", err
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(map[string]any{"mcpServers": all})
	return string(text), err
}

// newSession opens a new session.
func (s *served) newSession(ctx context.Context, p acp.NewSessionRequest) (any, error) {
	one, o, err := s.open(ctx, place{p.Cwd, p.AdditionalDirectories, p.McpServers}, "")
	if err != nil {
		return nil, err
	}
	return followed{one.opened(o), one.follow}, nil
}

// opened is the answer that tells the client of a session.
func (s *session) opened(o offered) acp.NewSessionResponse {
	return acp.NewSessionResponse{SessionId: s.name(), Modes: o.modes(), Models: o.modelState(),
		ConfigOptions: o.options()}
}

// load opens an earlier session and shows its conversation. One that is open is shown again.
func (s *served) load(ctx context.Context, p acp.LoadSessionRequest) (any, error) {
	one, o, then, err := s.reopen(ctx, place{p.Cwd, p.AdditionalDirectories, p.McpServers}, p.SessionId)
	if err != nil {
		return nil, err
	}
	if err := one.replay(); err != nil {
		s.conn.warn("show the conversation of session %s: %v", one.name(), err)
	}
	r := one.opened(o)
	return followed{acp.LoadSessionResponse{Modes: r.Modes, Models: r.Models, ConfigOptions: r.ConfigOptions}, then}, nil
}

// resume opens an earlier session without its conversation.
func (s *served) resume(ctx context.Context, p acp.ResumeSessionRequest) (any, error) {
	one, o, then, err := s.reopen(ctx, place{p.Cwd, p.AdditionalDirectories, p.McpServers}, p.SessionId)
	if err != nil {
		return nil, err
	}
	r := one.opened(o)
	return followed{acp.ResumeSessionResponse{Modes: r.Modes, Models: r.Models, ConfigOptions: r.ConfigOptions}, then}, nil
}

// reopen opens an earlier session, unless it is open. then is called when the client knows it.
func (s *served) reopen(
	ctx context.Context, p place, id acp.SessionId,
) (one *session, o offered, then func(), err error) {
	if one, err = s.find(id); err == nil {
		o, err = one.offer(ctx)
		return one, o, func() {}, err
	}
	if one, o, err = s.open(ctx, p, id); err != nil {
		return nil, o, nil, err
	}
	return one, o, one.follow, nil
}

// fork opens a new session that goes on with the conversation of another one.
func (s *served) fork(ctx context.Context, p forkRequest) (any, error) {
	where := place{p.Cwd, p.AdditionalDirectories, p.McpServers}
	o, err := where.opening(p.SessionID)
	if err != nil {
		return nil, err
	}
	copied, err := s.cfg.Host.Fork(ctx, o.Folder, o.Session)
	if err != nil {
		return nil, err
	}
	one, now, err := s.open(ctx, where, acp.SessionId(copied))
	if err != nil {
		return nil, err
	}
	return followed{one.opened(now), one.follow}, nil
}

// open opens a session and keeps it.
func (s *served) open(ctx context.Context, p place, id acp.SessionId) (*session, offered, error) {
	o, err := p.opening(id)
	if err != nil {
		return nil, offered{}, err
	}
	s.mu.Lock()
	if len(s.sessions)+s.opening >= maxSessions {
		s.mu.Unlock()
		return nil, offered{}, refuse(acp.NewInternalError,
			fmt.Sprintf("open a session: %d are open (close one)", maxSessions))
	}
	s.opening++
	s.mu.Unlock()
	one, err := newSession(ctx, s, o)
	var now offered
	if err == nil {
		if now, err = one.tellSettings(ctx); err != nil {
			_ = one.close() // the first problem is told
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
func (s *served) list(ctx context.Context, p acp.ListSessionsRequest) (any, error) {
	folder := ""
	if p.Cwd != nil {
		if folder = *p.Cwd; !filepath.IsAbs(folder) {
			return nil, refuse(acp.NewInvalidParams, fmt.Sprintf("list sessions: cwd %.200q is not absolute", folder))
		}
	}
	all, err := s.cfg.Host.Sessions(ctx, folder)
	if err != nil {
		return nil, err
	}
	if p.Cursor != nil {
		at := slices.IndexFunc(all, func(i control.Info) bool { return string(i.Session) == *p.Cursor })
		if at < 0 {
			return nil, refuse(acp.NewInvalidParams, fmt.Sprintf("list sessions: cursor %.80q is not known", *p.Cursor))
		}
		all = all[at+1:]
	}
	out := acp.ListSessionsResponse{Sessions: []acp.SessionInfo{}}
	for i, info := range all {
		if i == pageOf {
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

// delete removes what a session left. One that is open here is closed first.
func (s *served) delete(ctx context.Context, p deleteRequest) (any, error) {
	if one, err := s.take(p.SessionID); err == nil {
		if err := one.close(); err != nil {
			return nil, err
		}
	}
	return nil, s.cfg.Host.Remove(ctx, task.ID(p.SessionID))
}

// title tells the client how the session is called since its first prompt.
func (s *session) title(prompt string) {
	name := s.open.Entitle(prompt)
	if name == "" {
		return
	}
	s.update(acp.SessionUpdate{SessionInfoUpdate: &acp.SessionSessionInfoUpdate{Title: &name,
		UpdatedAt: acp.Ptr(time.Now().UTC().Format(time.RFC3339))}})
}

// plan tells the client of the to-dos of the session.
func (s *session) plan() {
	all, err := s.open.Todos(s.ctx)
	if err != nil {
		if s.ctx.Err() == nil {
			s.of.conn.warn("read the to-dos of session %s: %v", s.name(), err)
		}
		return
	}
	plan := []acp.PlanEntry{}
	for _, one := range all {
		plan = append(plan, acp.PlanEntry{Content: one.Text, Priority: acp.PlanEntryPriorityMedium,
			Status: acp.PlanEntryStatus(cmp.Or(one.Status, "pending"))})
	}
	s.update(acp.UpdatePlan(plan...))
}

// used tells the client how full the model's window is, and what the session has cost.
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
