package mcpserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

const (
	usualTTL   = 24 * time.Hour
	longestTTL = 7 * 24 * time.Hour
	shortTTL   = time.Second
	handlePoll = time.Second
	handlePage = 100  // in one listing
	maxHandles = 1000 // of one folder
	maxHandle  = 4 << 10
)

// Handles keeps the handles of tasks in files, so that clients can use them after a restart of the server.
type Handles struct {
	Root home.Root
	Dir  string // below the root; created at the first handle
}

// handle is a task that a client holds by the protocol.
type handle struct {
	ID      string        `json:"id"` // random
	Task    task.ID       `json:"task_id"`
	Created time.Time     `json:"create_time"`
	TTL     time.Duration `json:"ttl_ns"`
}

func (h handle) over(now time.Time) bool { return !now.Before(h.Created.Add(h.TTL)) }

// file is the path of a handle; empty: the ID is invalid.
func (b Handles) file(id string) string {
	if len(id) < 20 || len(id) > 60 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return ""
	}
	return filepath.Join(b.Dir, id+".json")
}

func (b Handles) get(id string) (handle, error) {
	file := b.file(id)
	if file == "" {
		return handle{}, mcpwire.ErrUnknown
	}
	data, err := b.Root.ReadFile(file, maxHandle)
	if errors.Is(err, fs.ErrNotExist) {
		return handle{}, mcpwire.ErrUnknown
	}
	var h handle
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		return handle{}, fmt.Errorf("read the handle %s: %w", id, err)
	}
	if h.over(time.Now()) {
		return handle{}, mcpwire.ErrUnknown
	}
	return h, nil
}

// put makes a handle durable, and removes expired ones.
func (b Handles) put(h handle) error {
	if err := b.Root.Below().Mkdir(b.Dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the folder of handles: %w", err)
	}
	if live, err := b.list(true); err != nil {
		return err
	} else if len(live) >= maxHandles {
		return fmt.Errorf("%d tasks have handles already (call without a task, or wait until some expire)",
			len(live))
	}
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode a handle: %w", err)
	}
	return b.Root.WriteAtomic(b.file(h.ID), append(data, '\n'))
}

// list returns the handles, oldest first. With sweep it removes expired ones.
func (b Handles) list(sweep bool) ([]handle, error) {
	names, err := b.Root.Below().Names(b.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the handles: %w", err)
	}
	var all []handle
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		h, err := b.get(id)
		switch {
		case err == nil:
			all = append(all, h)
		case sweep && errors.Is(err, mcpwire.ErrUnknown):
			_ = b.Root.Below().Remove(filepath.Join(b.Dir, name)) // the next sweep tries again
		}
	}
	slices.SortFunc(all, func(a, b handle) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// startHeld starts a task with a handle. It ends with its time to live and not with the client.
func (s *server) startHeld(
	ctx context.Context, start control.StartRequest, wish *mcpwire.Wish,
) (string, started, error) {
	h := handle{ID: rand.Text(), TTL: usualTTL}
	if wish.TTL != nil {
		h.TTL = min(max(*wish.TTL, shortTTL), longestTTL)
	}
	if start.Timeout == 0 || start.Timeout > h.TTL {
		start.Timeout = h.TTL
	}
	rec, err := s.startOne(ctx, start)
	if err != nil {
		return "", started{}, err
	}
	h.Task, h.Created = rec.ID, rec.CreateTime
	if h.Created.IsZero() {
		h.Created = time.Now()
	}
	if err := s.cfg.Handles.put(h); err != nil {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer done()
		_, stopErr := s.link.Stop(last, control.StopRequest{
			Refs: []string{string(rec.ID)}, Actor: task.ByRuntime, Detail: "its handle could not be saved",
		})
		return "", started{}, errors.Join(err, stopErr)
	}
	wish.Grant(protocolTask(h, rec))
	return "started " + line(rec), started{Task: brief(rec)}, nil
}

// protocolTask is a task in the form of the protocol, without result and questions.
func protocolTask(h handle, rec task.Record) mcpwire.Task {
	t := mcpwire.Task{
		ID: h.ID, Status: mcpwire.Working, Message: line(rec), Created: h.Created, Updated: h.Created, TTL: h.TTL,
	}
	switch rec.Status {
	case task.Completed:
		t.Status = mcpwire.Completed
	case task.Failed:
		t.Status = mcpwire.Failed
	case task.Killed:
		t.Status = mcpwire.Cancelled
	}
	if rec.StartTime != nil {
		t.Updated = *rec.StartTime
	}
	if rec.EndTime != nil {
		t.Updated = *rec.EndTime
	}
	return t
}

// holder implements [mcpwire.Holder] for the tasks of all clients.
type holder struct{ *service }

func (v holder) record(ctx context.Context, s *server, id string) (handle, task.Record, error) {
	h, err := v.cfg.Handles.get(id)
	if err != nil {
		return h, task.Record{}, err
	}
	rec, err := s.link.Record(ctx, string(h.Task))
	if control.IsCode(err, control.NotFound) {
		err = mcpwire.ErrUnknown // its session was removed
	}
	return h, rec, err
}

// Get implements [mcpwire.Holder].
func (v holder) Get(ctx context.Context, id string) (mcpwire.Task, error) {
	ctx, done := v.alone.during(ctx)
	defer done()
	h, rec, err := v.record(ctx, v.alone, id)
	if err != nil {
		return mcpwire.Task{}, err
	}
	return v.alone.held(ctx, h, rec)
}

// held is a task in the form of the protocol with result and questions.
func (s *server) held(ctx context.Context, h handle, rec task.Record) (mcpwire.Task, error) {
	t := protocolTask(h, rec)
	if rec.Status.Terminal() {
		text, out, err := s.ended(ctx, rec)
		if err != nil {
			return t, err
		}
		t.Result = &mcp.CallToolResult{
			Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: out, IsError: rec.Status != task.Completed,
		}
		return t, nil
	}
	open, err := s.openQuestions(ctx, string(rec.ID))
	if err != nil || len(open) == 0 {
		return t, err
	}
	t.Status, t.Inputs = mcpwire.InputRequired, mcp.InputRequestMap{}
	for _, q := range open {
		t.Inputs[q.ID] = q.form()
	}
	return t, nil
}

// openQuestions returns the open permission questions of the subtree of a task.
func (s *server) openQuestions(ctx context.Context, ref string) (list []*shownQuestion, err error) {
	open, err := s.approvals(ctx, -1)
	for _, q := range open.Questions {
		if shown, ok := s.shown(ctx, q, []string{ref}); ok {
			list = append(list, shown)
		}
	}
	return list, err
}

// Wait implements [mcpwire.Holder].
func (v holder) Wait(ctx context.Context, from *mcp.CallToolRequest, id string) (mcpwire.Task, error) {
	s := v.of(from.Session)
	ctx, done := s.during(ctx)
	defer done()
	h, rec, err := v.record(ctx, s, id)
	if err != nil {
		return mcpwire.Task{}, err
	}
	if !rec.Status.Terminal() {
		defer s.progress(ctx, from, []string{string(rec.ID)})()
		wait := control.WaitRequest{Refs: []string{string(rec.ID)}}
		reply, err := s.attend(ctx, from, wait, asked{seen: map[string]bool{}})
		if err != nil {
			return mcpwire.Task{}, err
		}
		if len(reply.Tasks) > 0 {
			rec = reply.Tasks[0]
		}
	}
	return s.held(ctx, h, rec)
}

// List implements [mcpwire.Holder]. The cursor is the last handle of the page before.
func (v holder) List(ctx context.Context, cursor string) (list []mcpwire.Task, next string, err error) {
	ctx, done := v.alone.during(ctx)
	defer done()
	all, err := v.cfg.Handles.list(false)
	if err != nil {
		return nil, "", err
	}
	if cursor != "" {
		i := slices.IndexFunc(all, func(h handle) bool { return h.ID == cursor })
		if i < 0 {
			return nil, "", mcpwire.ErrUnknown
		}
		all = all[i+1:]
	}
	if len(all) > handlePage {
		all, next = all[:handlePage], all[handlePage-1].ID
	}
	for _, h := range all {
		_, rec, err := v.record(ctx, v.alone, h.ID)
		if errors.Is(err, mcpwire.ErrUnknown) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		t := protocolTask(h, rec)
		if rec.AwaitingApproval {
			t.Status = mcpwire.InputRequired
		}
		list = append(list, t)
	}
	return list, next, nil
}

// Answer implements [mcpwire.Holder].
func (v holder) Answer(ctx context.Context, id string, answers map[string]json.RawMessage) error {
	ctx, done := v.alone.during(ctx)
	defer done()
	_, rec, err := v.record(ctx, v.alone, id)
	if err != nil || len(answers) == 0 {
		return err
	}
	open, err := v.alone.openQuestions(ctx, string(rec.ID))
	if err != nil {
		return err
	}
	for _, q := range open {
		raw, ok := answers[q.ID]
		if !ok {
			continue
		}
		var res mcp.ElicitResult
		if json.Unmarshal(raw, &res) != nil {
			continue // an unreadable answer leaves the question open
		}
		if err := v.alone.decide(ctx, q.Question, &res); err != nil {
			return err
		}
	}
	return nil
}

// Cancel implements [mcpwire.Holder].
func (v holder) Cancel(ctx context.Context, id string) error {
	ctx, done := v.alone.during(ctx)
	defer done()
	_, rec, err := v.record(ctx, v.alone, id)
	if err != nil {
		return err
	}
	_, err = v.alone.link.Stop(ctx, control.StopRequest{
		Refs: []string{string(rec.ID)}, Actor: task.ByClient, Detail: "by tasks/cancel",
	})
	return err
}
