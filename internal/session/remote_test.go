package session

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/a2atest"
	"github.com/drover-dev/drover/test/modeltest"
)

const farToken = "far-token-0123456789"

// newFar starts an agent elsewhere. Its tasks are at work until a test ends them.
func newFar(t *testing.T) *a2atest.Agent {
	t.Helper()
	f := a2atest.New()
	f.Token = farToken
	t.Cleanup(f.Close)
	return f
}

// finish ends all tasks with an answer.
func finish(f *a2atest.Agent, text string) {
	f.Change(func(t *a2a.Task) { a2atest.End(t, a2a.Completed, text) })
}

// prompted is what a task elsewhere was begun with.
func prompted(t a2a.Task) string { return a2a.Text(t.History[0].Parts) }

// uses makes a session know the agent, whose token the host has.
func uses(f *a2atest.Agent) func(*Config) {
	return func(c *Config) {
		c.Options.Remote.Services = map[string]options.RemoteService{"cloud": {URL: f.Card(), TokenEnv: "FAR_TOKEN"}}
		c.Agents.RemoteEnv = []string{"FAR_TOKEN=" + farToken}
	}
}

func (r *testSession) goFar(req control.RemoteRequest, change ...func(*control.StartRequest)) control.Started {
	r.t.Helper()
	return r.ask("", append([]func(*control.StartRequest){func(q *control.StartRequest) { q.Shell, q.Remote = nil, &req }}, change...)...)
}

// working waits until a remote task has its session, and returns that.
func (r *testSession) working(id task.ID) string {
	r.t.Helper()
	for e, err := range r.Events(r.ctx, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if p := e.Task.Progress; e.Task.ID == id && p != nil && p.Remote != nil && p.Remote.ID != "" {
			return p.Remote.ID
		}
	}
	r.t.Fatal("there are no more events")
	return ""
}

// ID-12, C-08: a remote agent is found by its session elsewhere too, while it works,
// after its end, in the next host, and where no host is.
func TestRemoteBySession(t *testing.T) {
	f := newFar(t)
	r := open(t, "", uses(f))
	started := r.goFar(control.RemoteRequest{Prompt: "do it"})
	if started.Error != nil {
		t.Fatal(started.Error)
	}
	id := started.Task.ID
	far := r.working(id)
	if got, err := r.Get(r.ctx, far); err != nil || got.ID != id {
		t.Errorf("at work: %s, %v", got.ID, err)
	}
	for _, part := range []string{far[:len(far)-1], far + "x"} {
		if got, err := r.Get(r.ctx, part); code(err) != control.NotFound {
			t.Errorf("%s is %s, %v", part, got.ID, err)
		}
	}
	finish(f, "done there")
	if got := r.wait(far)[0]; got.Status != task.Completed || got.Notified != true {
		t.Errorf("ended: %+v", got)
	}
	if a, err := control.WholeResult(r.ctx, r, far); err != nil || a.Text != "done there" || a.Task.ID != id {
		t.Errorf("answer %+v, %v", a, err)
	}
	r.reopen()
	if got, err := r.Get(r.ctx, far); err != nil || got.ID != id {
		t.Errorf("in the next host: %s, %v", got.ID, err)
	}
	r.close()
	a, err := archive.Open(t.Context(), r.cfg.Place, r.cfg.Info)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got, err := a.Get(t.Context(), far); err != nil || got.ID != id {
		t.Errorf("without a host: %s, %v", got.ID, err)
	}
}

// What a service calls its session is no way to get at another task.
func TestRemoteSessionGoesLast(t *testing.T) {
	f := newFar(t)
	r := open(t, "", uses(f))
	other := r.run("true", named("build"))
	r.wait("build")
	for _, ref := range []string{"build", string(other.ID), string(other.ID)[:4]} {
		f.Begin = func(t *a2a.Task) { t.ID = ref }
		far := r.goFar(control.RemoteRequest{Prompt: "x"})
		if far.Error != nil {
			t.Fatal(far.Error)
		}
		r.working(far.Task.ID)
		if got, err := r.Get(r.ctx, ref); err != nil || got.ID != other.ID {
			t.Errorf("%s: %s, %v", ref, got.ID, err)
		}
	}
	finish(f, "done")
}

// The end of a host is none of the work: the next one goes on with the same session.
func TestRemoteNextHost(t *testing.T) {
	f := newFar(t)
	r := open(t, "", uses(f))
	id := r.goFar(control.RemoteRequest{Prompt: "do it"}).Task.ID
	r.working(id)
	r.reopen()
	if now, err := r.Get(r.ctx, string(id)); err != nil || now.Status != task.Running {
		t.Fatalf("in the next host: %s, %v", now.Status, err)
	}
	finish(f, "done there")
	if got := r.wait(string(id))[0]; got.Status != task.Completed {
		t.Errorf("%s %s", got.Status, got.Error)
	}
	if all := f.Tasks(); len(all) != 1 || all[0].Status.State != a2a.Completed || prompted(all[0]) != "do it" {
		t.Errorf("sessions %+v", all)
	}
}

// A stop cancels the task elsewhere before it returns.
func TestRemoteStop(t *testing.T) {
	f := newFar(t)
	r := open(t, "", uses(f))
	id := r.goFar(control.RemoteRequest{Prompt: "do it"}).Task.ID
	far := r.working(id)
	receipt, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{far}})
	if err != nil || len(receipt.Stopped) != 1 || len(receipt.Survivors) != 0 {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
	if all := f.Tasks(); len(all) != 1 || all[0].Status.State != a2a.Canceled {
		t.Errorf("sessions %+v", all)
	}
}

// The token of a client serves the service, and is in no file of the session.
func TestRemoteToken(t *testing.T) {
	f := newFar(t)
	r := open(t, "", uses(f), func(c *Config) { c.Agents.RemoteEnv = nil })
	if s := r.goFar(control.RemoteRequest{Prompt: "x"}); s.Error == nil || s.Error.Code != control.Invalid || !strings.Contains(s.Error.Message, "FAR_TOKEN") {
		t.Errorf("without a token: %+v", s)
	}
	s := r.goFar(control.RemoteRequest{Prompt: "x"}, func(q *control.StartRequest) { q.Env = append(q.Env, "FAR_TOKEN="+farToken) })
	if s.Error != nil {
		t.Fatal(s.Error)
	}
	r.working(s.Task.ID)
	finish(f, "done")
	r.wait(string(s.Task.ID))
	r.close()
	files := 0
	err := filepath.WalkDir(filepath.Dir(r.cfg.Place.Dir()), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(farToken)) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestRemoteRefused(t *testing.T) {
	f := newFar(t)
	r := open(t, "", uses(f), func(c *Config) { c.Options.Remote.Default = "none" })
	for name, c := range map[string]struct {
		req  control.RemoteRequest
		keep bool
		says string
	}{
		"none":    {control.RemoteRequest{Prompt: "x"}, false, "not in the settings"},
		"unknown": {control.RemoteRequest{Prompt: "x", Service: "nowhere"}, false, "not in the settings"},
		"plain":   {control.RemoteRequest{Prompt: "x", Service: "http://example.com/agent-card.json"}, false, "neither https nor on this machine"},
		"type":    {control.RemoteRequest{Prompt: "x", Service: "cloud", Type: "magic"}, false, "not known"},
		"prompt":  {control.RemoteRequest{Prompt: " ", Service: "cloud"}, false, "the prompt is empty"},
		"keep":    {control.RemoteRequest{Prompt: "x", Service: "cloud"}, true, "anyway"},
	} {
		s := r.goFar(c.req, func(q *control.StartRequest) { q.Keep = c.keep })
		if s.Error == nil || !strings.Contains(s.Error.Message, c.says) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if page, err := r.List(r.ctx, control.ListRequest{All: true}); err != nil || len(page.Tasks) != 0 || len(f.Tasks()) != 0 {
		t.Errorf("refused requests left %+v, %+v, %v", page.Tasks, f.Tasks(), err)
	}
}

// An agent sends another elsewhere, and is told of its end.
func TestRemoteForModel(t *testing.T) {
	f := newFar(t)
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{"main": {
		blocks(modeltest.ToolUse("", "Agent", map[string]any{"description": "d", "prompt": "go there", "name": "ada", "isolation": "remote"})),
		modeltest.Text("it works elsewhere"), modeltest.Text("told"),
	}}), uses(f))
	m := converse(r)
	m.say("go")
	if turn := m.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	rec, err := r.Get(r.ctx, "ada")
	if err != nil || rec.Kind != task.RemoteAgent || rec.Owner != r.cfg.Info.Session {
		t.Fatalf("record %+v, %v", rec, err)
	}
	r.working(rec.ID)
	finish(f, "found it far away")
	if turn := m.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	asked := of(server, "main")
	if last := string(asked[len(asked)-1].Body); !strings.Contains(last, "found it far away") || strings.Contains(last, farToken) {
		t.Errorf("the agent was told %s", last)
	}
	if all := f.Tasks(); len(all) != 1 || prompted(all[0]) != "go there" {
		t.Errorf("sessions %+v", all)
	}
}
