package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; none comes near it.
const patience = 30 * time.Second

// testSession is an open session in a folder of its own, and what a test asks of it.
type testSession struct {
	t      *testing.T
	ctx    context.Context
	cfg    Config
	folder string
	*Session
}

// open opens a session. script holds the turns of its agents.
func open(t *testing.T, script string, change ...func(*Config)) *testSession {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("the test waits in vain"))
	t.Cleanup(cancel)
	folder := t.TempDir()
	project := home.At(t.TempDir()).Project(folder)
	if err := project.Ensure(); err != nil {
		t.Fatal(err)
	}
	models := &provider.Finder{}
	t.Cleanup(models.Close)
	id := task.NewSessionID() // a session ends what bears its mark, also that of another run of the tests
	cfg := Config{Config: tasks.Config{Place: project.Session(id), Options: plain(),
		Info: control.Info{Session: id, Project: folder, Role: RolePrompt, Version: "test"}},
		Agents: agents.Config{Models: models, Catalog: subagent.Builtin, Rules: policy.Rules{Mode: policy.Bypass, Home: folder, Path: os.Getenv("PATH")}, Env: os.Environ()}}
	if script != "" {
		path := filepath.Join(t.TempDir(), "turns.yaml")
		if err := os.WriteFile(path, []byte("version: 1\nagents:\n"+script), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Options.Model = "script:" + path
	}
	for _, c := range change {
		c(&cfg)
	}
	r := &testSession{t: t, ctx: ctx, cfg: cfg, folder: folder}
	r.reopen()
	t.Cleanup(r.close)
	return r
}

// plain are the usual options without what tests ask for one by one.
func plain() options.Options {
	o := options.Default()
	o.Limits.QuoteFrom, o.Agents.Summaries, o.Agents.StallAfter = 0, 0, 0
	o.Tasks.UserQuotaBytes, o.Tasks.MinFreeBytes, o.Tasks.MaxProcesses = 0, 0, 0
	return o
}

func (r *testSession) reopen() {
	r.t.Helper()
	r.close()
	s, err := Open(r.ctx, r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Session = s
}

func (r *testSession) close() {
	r.t.Helper()
	if r.Session == nil {
		return
	}
	if err := r.Session.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	r.Session = nil
}

// run starts a line of bash.
func (r *testSession) run(line string, change ...func(*control.StartRequest)) task.Record {
	r.t.Helper()
	started := r.ask(line, change...)
	if started.Error != nil {
		r.t.Fatal(started.Error)
	}
	return *started.Task
}

func (r *testSession) ask(line string, change ...func(*control.StartRequest)) control.Started {
	r.t.Helper()
	req := control.StartRequest{Shell: &control.ShellRequest{Line: line}, Env: os.Environ(), Cwd: r.folder}
	for _, c := range change {
		c(&req)
	}
	started, err := r.Start(r.ctx, []control.StartRequest{req})
	if err != nil || len(started) != 1 {
		r.t.Fatalf("start: %+v, %v", started, err)
	}
	return started[0]
}

func (r *testSession) wait(refs ...string) []task.Record {
	r.t.Helper()
	reply, err := r.Wait(r.ctx, control.WaitRequest{Refs: refs})
	if err != nil || reply.TimedOut {
		r.t.Fatalf("wait: %+v, %v", reply, err)
	}
	return reply.Tasks
}

// ready waits until the task has printed something.
func (r *testSession) ready(ref string) {
	r.t.Helper()
	c, err := r.Output(r.ctx, control.OutputRequest{Ref: ref, Wait: patience})
	if err != nil || len(c.Data) == 0 {
		r.t.Fatalf("output of %s: %+v, %v", ref, c, err)
	}
}

func named(name string) func(*control.StartRequest) {
	return func(r *control.StartRequest) { r.Name = name }
}

func code(err error) control.Code {
	var e *control.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestStart(t *testing.T) {
	r := open(t, "")
	started, err := r.Start(r.ctx, []control.StartRequest{
		{Shell: &control.ShellRequest{Args: []string{"sh", "-c", "echo 'a b'; exit 3"}}, Cwd: r.folder, Env: os.Environ(), Name: "three"},
		{},
		{Shell: &control.ShellRequest{}, Cwd: r.folder},
		{Shell: &control.ShellRequest{Line: "true"}, Timeout: -1},
		{Shell: &control.ShellRequest{Line: "true"}, Cwd: "relative"},
		{Agent: &control.AgentRequest{Type: "nobody", Prompt: "x"}},
		{Agent: &control.AgentRequest{Type: "plan", Prompt: "x"}, Keep: true},
		{Shell: &control.ShellRequest{Line: "exit 0"}, Cwd: r.folder, Env: os.Environ()},
	})
	if err != nil || len(started) != 8 {
		t.Fatalf("start: %+v, %v", started, err)
	}
	for i, s := range started {
		if good := i == 0 || i == 7; good != (s.Task != nil) || good != (s.Error == nil) {
			t.Errorf("request %d: %+v", i, s)
		}
	}
	if got := r.wait("three"); got[0].Status != task.Failed || *got[0].ExitCode != 3 || got[0].Command != "sh -c 'echo '\"'\"'a b'\"'\"'; exit 3'" && got[0].Command != `sh -c "echo 'a b'; exit 3"` {
		t.Errorf("task %+v", got[0])
	}
	if a, err := control.WholeResult(r.ctx, r, "three"); err != nil || a.Text != "a b\n" {
		t.Errorf("result %q, %v", a.Text, err)
	}
	page, err := r.List(r.ctx, control.ListRequest{All: true})
	if err != nil || len(page.Tasks) != 2 {
		t.Errorf("refused requests left tasks: %+v, %v", page, err)
	}
}

func TestWait(t *testing.T) {
	r := open(t, "")
	r.run("read x < gate; exit 5", named("slow"), func(q *control.StartRequest) { q.Shell.Line = "exec sleep 100" })
	r.run("exit 4", named("fast"))
	reply, err := r.Wait(r.ctx, control.WaitRequest{Refs: []string{"slow", "fast"}, Any: true})
	if err != nil || reply.TimedOut || len(reply.Tasks) != 2 || reply.Tasks[0].Name != "fast" || reply.Tasks[1].Status.Terminal() {
		t.Errorf("any: %+v, %v", reply, err)
	}
	reply, err = r.Wait(r.ctx, control.WaitRequest{Refs: []string{"slow"}, Timeout: time.Millisecond})
	if err != nil || !reply.TimedOut || len(reply.Tasks) != 1 {
		t.Errorf("timeout: %+v, %v", reply, err)
	}
	for refs, want := range map[string]control.Code{"": control.Invalid, "nobody": control.NotFound} {
		if _, err := r.Wait(r.ctx, control.WaitRequest{Refs: strings.Fields(refs)}); code(err) != want {
			t.Errorf("%q: %v", refs, err)
		}
	}
	gone, cancel := context.WithCancelCause(r.ctx)
	why := errors.New("the client has gone")
	cancel(why)
	if _, err := r.Wait(gone, control.WaitRequest{Refs: []string{"slow"}}); !errors.Is(err, why) {
		t.Errorf("client gone: %v", err)
	}
	receipt, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{"slow", "fast"}, Detail: "enough"})
	if err != nil || len(receipt.Stopped) != 2 || len(receipt.Survivors) != 0 {
		t.Fatalf("stop: %+v, %v", receipt, err)
	}
	for _, s := range receipt.Stopped {
		got, err := r.Get(r.ctx, string(s.ID))
		if err != nil || got.Status != s.Status || *got.Cause != *s.Cause {
			t.Errorf("receipt %+v, task %+v, %v", s, got, err)
		}
		if got.Name == "slow" && (got.Status != task.Killed || got.Cause.Actor != task.ByUser || got.Cause.Detail != "enough") {
			t.Errorf("stopped %+v %+v", got, got.Cause)
		}
		if got.Name == "fast" && got.Status != task.Failed {
			t.Errorf("stopping changed an end: %+v", got)
		}
	}
	grace := -time.Second
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{"slow"}, Grace: &grace}); code(err) != control.Invalid {
		t.Errorf("negative grace: %v", err)
	}
}

func TestOutput(t *testing.T) {
	r := open(t, "")
	fifo := filepath.Join(r.folder, "gate")
	r.run("mkfifo gate; echo first; read x < gate; echo $x", named("talker"))
	c, err := r.Output(r.ctx, control.OutputRequest{Ref: "talker", Wait: patience})
	if err != nil || string(c.Data) != "first\n" || c.Ended {
		t.Fatalf("first %+v %q, %v", c, c.Data, err)
	}
	none, err := r.Output(r.ctx, control.OutputRequest{Ref: "talker", Offset: c.Next})
	if err != nil || len(none.Data) != 0 || none.Ended || none.Next != c.Next {
		t.Errorf("nothing new: %+v, %v", none, err)
	}
	type answer struct {
		c   control.Chunk
		err error
	}
	next := make(chan answer, 1)
	go func() {
		c, err := r.Output(r.ctx, control.OutputRequest{Ref: "talker", Offset: c.Next, Wait: patience})
		next <- answer{c, err}
	}()
	if err := os.WriteFile(fifo, []byte("second\n"), 0); err != nil {
		t.Fatal(err)
	}
	got := <-next
	if got.err != nil || string(got.c.Data) != "second\n" {
		t.Errorf("second %+v %q, %v", got.c, got.c.Data, got.err)
	}
	r.wait("talker")
	end, err := r.Output(r.ctx, control.OutputRequest{Ref: "talker", Offset: got.c.Next, Wait: patience})
	if err != nil || !end.Ended || len(end.Data) != 0 {
		t.Errorf("end %+v, %v", end, err)
	}
}

func TestResultEarly(t *testing.T) {
	r := open(t, "")
	r.run("exec sleep 100", named("busy"))
	if _, err := control.WholeResult(r.ctx, r, "busy"); code(err) != control.Conflict {
		t.Errorf("result of a running task: %v", err)
	}
	if err := r.Prompt(r.ctx, control.PromptRequest{Text: "x"}); code(err) != control.Unavailable {
		t.Errorf("prompt without a main agent: %v", err)
	}
}

func TestTimeout(t *testing.T) {
	r := open(t, "")
	late := r.run("exec sleep 100", func(q *control.StartRequest) { q.Timeout = 10 * time.Millisecond })
	if got := r.wait(string(late.ID)); got[0].Status != task.Failed || got[0].Cause.Reason != task.ReasonTimeout {
		t.Errorf("%s, %+v", got[0].Status, got[0].Cause)
	}
}

func TestLease(t *testing.T) {
	leased := func(q *control.StartRequest) { q.Lease = "client" }
	ended := func(t *testing.T, r *testSession, id task.ID) {
		t.Helper()
		got := r.wait(string(id))[0]
		if got.Status != task.Killed || got.Cause.Actor != task.ByClient || got.Cause.Detail != tasks.ClientGone {
			t.Errorf("%s, %+v", got.Status, got.Cause)
		}
	}
	t.Run("lost", func(t *testing.T) {
		r := open(t, "")
		before := r.run("exec sleep 100", leased) // the requests of a client may overtake each other
		other := r.run("exec sleep 100")
		ctx, drop := context.WithCancel(r.ctx)
		defer drop()
		s, held := r.Session, make(chan error, 2)
		for range 2 {
			go func() { held <- s.HoldLease(ctx, "client") }()
		}
		if err := <-held; code(err) != control.Conflict { // one of them must keep waiting
			t.Errorf("second holder: %v", err)
		}
		during := r.run("exec sleep 100", leased)
		drop()
		if err := <-held; err != nil {
			t.Errorf("holder: %v", err)
		}
		ended(t, r, before.ID)
		ended(t, r, during.ID)
		if got, err := r.Get(r.ctx, string(other.ID)); err != nil || got.Status.Terminal() {
			t.Errorf("a task without the lease: %+v, %v", got, err)
		}
		if s := r.ask("true", leased); s.Error == nil || s.Error.Code != control.Conflict {
			t.Errorf("start under a lost lease: %+v", s)
		}
	})
	t.Run("closing", func(t *testing.T) {
		r := open(t, "")
		r.run("exec sleep 100", leased)
		s := r.Session
		held := make(chan error, 1)
		go func() { held <- s.HoldLease(r.ctx, "client") }()
		r.close()
		if err := <-held; err != nil {
			t.Errorf("held until the end: %v", err)
		}
	})
	t.Run("nameless", func(t *testing.T) {
		if err := open(t, "").HoldLease(t.Context(), ""); code(err) != control.Invalid {
			t.Errorf("a lease without a name: %v", err)
		}
	})
}

func TestList(t *testing.T) {
	r := open(t, "")
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		r.run("true", named("n"+name))
	}
	r.run("exec sleep 100", named("n6"))
	r.wait("n1", "n2", "n3", "n4", "n5")
	for _, limit := range []int{0, 1, 2, 6} {
		req := control.ListRequest{All: true, Limit: limit}
		got := ""
		for range 10 {
			page, err := r.List(r.ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range page.Tasks {
				got += rec.Name[1:]
			}
			if req.Before = page.Next; req.Before == 0 {
				break
			}
		}
		if got != "654321" {
			t.Errorf("limit %d: %s", limit, got)
		}
	}
	page, err := r.List(r.ctx, control.ListRequest{})
	if err != nil || len(page.Tasks) != 1 || page.Tasks[0].Name != "n6" {
		t.Errorf("live: %+v, %v", page, err)
	}
}

func TestClose(t *testing.T) {
	r := open(t, "")
	r.run("trap '' HUP; echo ready; exec sleep 100", named("busy"))
	r.run("exit 3", named("done"))
	r.wait("done")
	r.ready("busy")
	if _, err := Open(r.ctx, r.cfg); !errors.Is(err, home.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	r.close()

	data, err := os.ReadFile(r.cfg.Place.InfoFile())
	if err != nil {
		t.Fatal(err)
	}
	var info control.Info
	if err := json.Unmarshal(data, &info); err != nil {
		t.Fatal(err)
	}
	if info.Live || info.PID != 0 || info.EndTime == nil || info.Tasks != (control.Counts{Total: 2}) || info.DiskBytes == 0 {
		t.Errorf("session.json: %s", data)
	}
	check := func(api control.API) {
		t.Helper()
		busy, err := api.Get(r.ctx, "busy")
		if err != nil || busy.Status != task.Killed || busy.Cause.Reason != task.ReasonClosing {
			t.Errorf("busy: %s %+v, %v", busy.Status, busy.Cause, err)
		}
		done, err := api.Get(r.ctx, "done")
		if err != nil || done.Status != task.Failed || *done.ExitCode != 3 {
			t.Errorf("done: %+v, %v", done, err)
		}
	}
	a, err := archive.Open(r.ctx, r.cfg.Place, info)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	check(a)
	r.reopen()
	check(r)
}
