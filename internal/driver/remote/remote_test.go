package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/a2atest"
	"github.com/drover-dev/drover/test/tasktest"
	"github.com/drover-dev/drover/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newAgent starts an agent that the test steers.
func newAgent(t *testing.T) *a2atest.Agent {
	a := a2atest.New()
	t.Cleanup(a.Close)
	return a
}

// driverOf makes a driver for an agent with quick polls, and a sidecar in a folder of the test.
func driverOf(t *testing.T, a *a2atest.Agent, change ...func(*Config)) (*Driver, string) {
	dir := t.TempDir()
	c := Config{Settings: options.Remote{Services: map[string]options.RemoteService{"there": {URL: a.Card()}}, Offline: time.Minute},
		Sidecar:  func(id task.ID) string { return filepath.Join(dir, string(id)+".json") },
		Checkers: map[string]Checker{}, Base: time.Millisecond, Most: 4 * time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	d := New(c)
	t.Cleanup(d.Close)
	return d, dir
}

func job(t *testing.T, more ...func(*Job)) json.RawMessage {
	t.Helper()
	j := Job{Service: "there", Prompt: "do it"}
	for _, f := range more {
		f(&j)
	}
	raw, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func ofType(t string) func(*Job) { return func(j *Job) { j.Type = t } }

// completed is a task that completes at once, after it has said and printed something.
func completed(result string, more ...func(*a2a.Task)) func(*a2a.Task) {
	return func(t *a2a.Task) {
		for _, f := range more {
			f(t)
		}
		a2atest.End(t, a2a.Completed, result)
	}
}

func says(text string) func(*a2a.Task) {
	return func(t *a2a.Task) { a2atest.Say(t, a2a.Working, text) }
}

func prints(name, text string) func(*a2a.Task) {
	return func(t *a2a.Task) { a2atest.Print(t, name, text) }
}

// old is a host of a task that an earlier host has begun.
type old struct {
	*tasktest.Host
	rec task.Record
}

func (o old) Record() task.Record { return o.rec }

func adopted(h *tasktest.Host, checkpoint string, change ...func(*task.Record)) old {
	r := h.Record()
	r.Checkpoint, r.Prompt = []byte(checkpoint), "do it"
	for _, f := range change {
		f(&r)
	}
	return old{h, r}
}

// tidy is a driver whose idle connections do not outlive a run.
type tidy struct{ *Driver }

func (d tidy) Run(ctx context.Context, h task.Host) (task.Result, error) {
	defer d.Close()
	return d.Driver.Run(ctx, h)
}

// The driver keeps the contract of all kinds.
func TestContract(t *testing.T) {
	a := newAgent(t)
	a.Begin = func(f *a2a.Task) {
		if a2a.Text(f.History[0].Parts) == "zippy" {
			completed("this is the answer")(f)
		}
	}
	work := func(prompt string) func(*testing.T) (task.Driver, json.RawMessage) {
		return func(t *testing.T) (task.Driver, json.RawMessage) {
			d, _ := driverOf(t, a)
			return tidy{d}, job(t, func(j *Job) { j.Prompt = prompt })
		}
	}
	tasktest.Run(t, tasktest.Config{Long: work("work"), Short: work("zippy"), Prints: "this is the answer",
		Grace: 20 * time.Second, Checkpoint: work("zippy"), Outlives: true})
}

func TestCheck(t *testing.T) {
	d, _ := driverOf(t, newAgent(t))
	for _, bad := range []string{`{"service":"","prompt":"x"}`, `{"service":"there","prompt":" "}`, `{"service":"there","prompt":"x","type":"cloud"}`,
		`{"service":"there","prompt":"x","metadata":[1]}`, `{"service":"there","prompt":"x","metadata":null,"more":1}`,
		`{"service":"there","prompt":"` + strings.Repeat("x", maxPrompt+1) + `"}`} {
		if d.Check(json.RawMessage(bad)) == nil {
			t.Errorf("accepted: %.80s", bad)
		}
	}
	for _, kind := range append(control.RemoteTypes(), "") {
		if err := d.Check(job(t, ofType(kind))); err != nil {
			t.Errorf("type %q: %v", kind, err)
		}
	}
}

// A service is found by its name, with the token of its own variable only, or by the address of its card. What is
// wrong is said before anything is recorded.
func TestJob(t *testing.T) {
	set := options.Remote{Default: "cloud", Services: map[string]options.RemoteService{
		"cloud": {URL: "https://one.example/agent-card.json", TokenEnv: "ONE"}, "open": {URL: "https://two.example/agent-card.json"},
		"any path": {URL: "https://two.example/card", Protocol: "a2a"}, "old": {URL: "https://three.example/drover"},
		"older": {URL: "https://three.example/drover", Protocol: "drover"}, "plain": {URL: "http://three.example/agent-card.json"}}}
	d := New(Config{Settings: set, Env: []string{"ONE=of-the-session"}})
	defer d.Close()
	for name, c := range map[string]struct {
		req  control.RemoteRequest
		says string
	}{
		"usual":    {control.RemoteRequest{Prompt: "x"}, ""},
		"named":    {control.RemoteRequest{Service: "open"}, ""},
		"any path": {control.RemoteRequest{Service: "any path"}, ""},
		"address":  {control.RemoteRequest{Service: "https://three.example/agent-card.json"}, ""},
		"unknown":  {control.RemoteRequest{Service: "nowhere"}, "is not in the settings"},
		"type":     {control.RemoteRequest{Service: "open", Type: "no such type"}, "type"},
		"old":      {control.RemoteRequest{Service: "old"}, "Drover's own session API was removed (give the address of a card"},
		"older":    {control.RemoteRequest{Service: "older"}, "Drover's own session API was removed"},
		"plain":    {control.RemoteRequest{Service: "plain"}, "neither https nor on this machine"},
	} {
		_, job, err := d.Job(c.req, nil)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, job, err)
		}
	}
	if !d.Usable() {
		t.Error("the usual service is not usable")
	}
	d.Env = nil
	if _, _, err := d.Job(control.RemoteRequest{}, nil); err == nil || !strings.Contains(err.Error(), "the variable ONE") {
		t.Errorf("without its token: %v", err)
	}
	if _, _, err := d.Job(control.RemoteRequest{}, []string{"ONE=of-the-client"}); err != nil {
		t.Errorf("with the token of the client: %v", err)
	}
	for _, usual := range []string{"", "old", "nowhere"} {
		set.Default = usual
		if one := New(Config{Settings: set}); one.Usable() {
			t.Errorf("%q is usable", usual)
		}
	}
}

func recorded(cause error, res task.Result, err error) task.Record {
	change, _ := lifecycle.Ending(cause, res, err)
	rec, _ := lifecycle.Apply(task.Record{Status: task.Running}, change)
	return rec
}

func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		state  a2a.State
		want   task.Status
		reason task.Reason
		text   string
		says   string
	}{
		"completed": {a2a.Completed, task.Completed, task.ReasonDone, "several pieces\nthe answer", ""},
		"failed":    {a2a.Failed, task.Failed, reasonRemote, "", "it broke"},
		"cancelled": {a2a.Canceled, task.Killed, reasonArchived, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			a.Begin = func(f *a2a.Task) {
				prints("all", "several pieces\n")(f)
				a2atest.Print(f, "result", "the answer")
				a2atest.Say(f, c.state, "it broke")
			}
			d, dir := driverOf(t, a)
			h := tasktest.NewHost(t, task.RemoteAgent, job(t))
			res, err := d.Run(t.Context(), h)
			if got := recorded(nil, res, err); got.Status != c.want || got.Cause.Reason != c.reason || !strings.Contains(got.Error, c.says) {
				t.Errorf("recorded as %+v", got)
			}
			if c.text != "" && res.Text != c.text {
				t.Errorf("answer %q", res.Text)
			}
			if h.Printed() != "several pieces\nthe answer\n" {
				t.Errorf("output %q", h.Printed())
			}
			if a.Calls(a2a.CancelTask) > 0 {
				t.Error("a task that had ended was cancelled")
			}
			res.Settle()
			if files, _ := os.ReadDir(dir); len(files) > 0 {
				t.Errorf("left: %v", files)
			}
		})
	}
}

// A sidecar exists before the first poll, with what is needed to find the remote task again.
func TestSidecar(t *testing.T) {
	a := newAgent(t)
	d, dir := driverOf(t, a)
	h := tasktest.NewHost(t, task.RemoteAgent, job(t, ofType("background-pr"), func(j *Job) { j.Metadata = json.RawMessage(`{"pr":7}`) }))
	path := filepath.Join(dir, string(h.Record().ID)+".json")
	var at string
	a.Polls = true
	a.Fail = func(method string) error {
		if method == a2a.GetTask && at == "" {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			at = strings.TrimSpace(string(data))
			a.Change(completed("done"))
		}
		return nil
	}
	res, err := d.Run(t.Context(), h)
	if want := fmt.Sprintf(`{"taskId":%q,"sessionId":"far-1","remoteTaskType":"background-pr","remoteTaskMetadata":{"pr":7}}`, h.Record().ID); err != nil || at != want {
		t.Errorf("sidecar %s, want %s; %v", at, want, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("it is gone before the end is durable")
	}
	res.Settle()
	if _, err := os.Stat(path); err == nil {
		t.Error("it exists after the end")
	}
}

// crash is a fault of the host at one of the steps by which a remote task becomes known.
type crash struct {
	*tasktest.Host
	at    int
	saves int
}

var errCrash = errors.New("crash")

func (c *crash) Checkpoint(ctx context.Context, state []byte) error {
	if c.saves++; c.saves == c.at {
		panic(errCrash)
	}
	return c.Host.Checkpoint(ctx, state)
}

func (c *crash) Write(b []byte) (int, error) {
	n, err := c.Host.Write(b)
	if c.at == 3 {
		panic(errCrash)
	}
	return n, err
}

func (c *crash) Output() task.Output { return c }

// Whenever a host dies, there is one remote task, and the next host has it. The next one asks with the whole prompt,
// though the record has a part of a long prompt only.
func TestCrash(t *testing.T) {
	prompt := strings.Repeat("do it\n", 10_000)
	for at := 1; at <= 3; at++ {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			a := newAgent(t)
			a.Begin = prints("all", "before the crash, ")
			d, _ := driverOf(t, a)
			h := &crash{Host: tasktest.NewHost(t, task.RemoteAgent, job(t, func(j *Job) { j.Prompt = prompt })), at: at}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("it did not crash")
					}
				}()
				_, _ = d.Run(t.Context(), h)
			}()
			rec := h.Record()
			next, _ := driverOf(t, a)
			if got := next.Adopts(rec); got != (at > 1) {
				t.Fatalf("adopted: %v", got)
			}
			if at == 1 {
				if a.Calls(a2a.SendMessage) > 0 {
					t.Error("a task was begun before a checkpoint records it")
				}
				return
			}
			a.Change(func(f *a2a.Task) {
				a2atest.Print(f, "all", "and after it")
				a2atest.Print(f, "result", "done")
				f.Status.State = a2a.Completed
			})
			next.Config.Sidecar = d.Config.Sidecar
			if len(rec.Checkpoint) > 1000 != (at == 2) {
				t.Errorf("the checkpoint has %d bytes", len(rec.Checkpoint))
			}
			rec.Prompt = lifecycle.ShortPrompt(prompt)
			res, err := next.Run(t.Context(), old{h.Host, rec})
			if tasks := a.Tasks(); err != nil || res.Text != "before the crash, and after it\ndone" || len(tasks) != 1 || a2a.Text(tasks[0].History[0].Parts) != prompt {
				t.Errorf("%q, %v, %d tasks", res.Text, err, len(tasks))
			}
			if got := h.Printed(); got != "before the crash, and after it\ndone\n" {
				t.Errorf("output %q", got)
			}
			if a.Calls(a2a.ListTasks) > 0 {
				t.Error("the agent was asked for what the sidecar says")
			}
		})
	}
}

// A host that does not know whether there is a remote task looks for it, and asks again if there is none. Checkpoints
// of older versions have the prompt in the record only.
func TestAdoptWithoutSidecar(t *testing.T) {
	for checkpoint, prompt := range map[string]string{
		`{"v":1,"state":"creating","service":"there","type":"remote-agent"}`:                                    "do it",
		`{"v":1,"state":"creating","service":"there","type":"remote-agent","prompt":"do it, and all the rest"}`: "do it, and all the rest",
	} {
		for _, lost := range []bool{false, true} {
			a := newAgent(t)
			a.Begin = completed("done")
			d, _ := driverOf(t, a)
			h := tasktest.NewHost(t, task.RemoteAgent, job(t))
			if !lost {
				c, err := d.client("there")
				if err != nil {
					t.Fatal(err)
				}
				f, err := c.Start(t.Context(), a2a.Message{ID: string(h.Record().Run), Role: a2a.RoleUser, Parts: []a2a.Part{a2a.TextPart(prompt)}}, false)
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			res, err := d.Run(t.Context(), adopted(h, checkpoint))
			if tasks := a.Tasks(); err != nil || res.Text != "done" || len(tasks) != 1 || a2a.Text(tasks[0].History[0].Parts) != prompt {
				t.Errorf("%s: %q, %v, %d tasks", checkpoint, res.Text, err, len(tasks))
			}
		}
	}
}

// What cannot be followed is lost, with its reason; a remote session that may continue is named. The last is a
// session of the protocol of earlier versions.
func TestBadCheckpoints(t *testing.T) {
	a := newAgent(t)
	d, _ := driverOf(t, a, func(c *Config) { c.Settings.Services["old"] = options.RemoteService{URL: a.URL + "/drover"} })
	for bad, c := range map[string]struct{ says, left string }{
		`{`:       {"read checkpoint", ""},
		`{}`:      {"version 0 is not supported", ""},
		`{"v":2}`: {"version 2 is not supported", ""},
		`{"v":1,"state":"running","service":"there"}`:                   {"no ID of a task", ""},
		`{"v":1,"state":"running","service":"there","session":"../x"}`:  {"no ID of a task", "../x"},
		`{"v":1,"state":"dreaming","service":"there"}`:                  {"unknown state", ""},
		`{"v":1,"state":"running","service":"elsewhere","session":"s"}`: {"not in the settings", "remote session s of the service elsewhere"},
		`{"v":1,"state":"running","service":"old","session":"rs-x","type":"remote-agent"}`: {
			"Drover's own session API was removed", "remote session rs-x of the service old"},
	} {
		res, err := d.Run(t.Context(), adopted(tasktest.NewHost(t, task.RemoteAgent, nil), bad))
		rec := recorded(nil, res, err)
		if rec.Status != task.Killed || rec.Cause.Reason != task.ReasonLost || !strings.Contains(rec.Cause.Detail, c.says) {
			t.Errorf("%s: %s %+v", bad, rec.Status, rec.Cause)
		}
		if len(res.Left) > 0 != (c.left != "") || len(res.Left) > 0 && !strings.Contains(res.Left[0].Command, c.left) {
			t.Errorf("%s: left %+v", bad, res.Left)
		}
	}
	if len(a.Tasks()) > 0 {
		t.Error("the agent was asked")
	}
}

// A remote task that the agent does not know, such as a session of the protocol of earlier versions at a service that
// has a card now, ends with what the agent says of it.
func TestUnknownTask(t *testing.T) {
	d, _ := driverOf(t, newAgent(t))
	res, err := d.Run(t.Context(), adopted(tasktest.NewHost(t, task.RemoteAgent, nil),
		`{"v":1,"state":"running","service":"there","session":"rs-x","type":"remote-agent"}`))
	if rec := recorded(nil, res, err); rec.Status != task.Failed || rec.Cause.Reason != reasonRefused || !strings.Contains(rec.Error, "there is no task rs-x") ||
		len(res.Left) > 0 {
		t.Errorf("%+v, left %v", rec, res.Left)
	}
}

// runs starts a run that is under way when it returns.
func runs(t *testing.T, d *Driver, h task.Host) (stop func(cause error) (task.Result, error)) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	type outcome struct {
		res task.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() { // ended and waited for by stop
		res, err := d.Run(ctx, h)
		done <- outcome{res, err}
	}()
	return func(cause error) (task.Result, error) {
		t.Helper()
		cancel(cause)
		select {
		case o := <-done:
			return o.res, o.err
		case <-time.After(patience):
			t.Fatal("it did not end")
			return task.Result{}, nil
		}
	}
}

// followed waits until the agent was called.
func followed(t *testing.T, a *a2atest.Agent, method string) {
	t.Helper()
	if !waittest.Until(patience, func() bool { return a.Calls(method) > 0 }) {
		t.Fatalf("%s was not called", method)
	}
}

func TestStop(t *testing.T) {
	stopped := &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}
	for name, c := range map[string]struct {
		cause     error
		broken    error // of CancelTask
		cancelled bool
		left      string
		detached  bool
	}{
		"stop":    {cause: stopped, cancelled: true},
		"timeout": {cause: task.ErrTimeout, cancelled: true},
		"closing": {cause: task.ErrClosing, detached: true},
		"offline": {cause: stopped, broken: a2atest.ErrBreak, cancelled: true, left: "EOF"},
		"refused": {cause: stopped, broken: &a2a.Error{Code: a2a.CodeUnsupported, Message: "no cancels here"}, cancelled: true, left: "no cancels here"},
		"gone":    {cause: stopped, broken: &a2a.Error{Code: a2a.CodeTaskNotFound}, cancelled: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			d, dir := driverOf(t, a)
			a.Fail = func(method string) error {
				if method == a2a.CancelTask {
					return c.broken
				}
				return nil
			}
			stop := runs(t, d, tasktest.NewHost(t, task.RemoteAgent, job(t)))
			followed(t, a, a2a.SubscribeToTask)
			res, err := stop(c.cause)
			if (a.Calls(a2a.CancelTask) > 0) != c.cancelled || (len(res.Left) > 0) != (c.left != "") || errors.Is(err, task.ErrDetached) != c.detached {
				t.Errorf("%d cancelled, left %+v, %v", a.Calls(a2a.CancelTask), res.Left, err)
			}
			if len(res.Left) > 0 && (!strings.Contains(res.Left[0].Command, "remote task far-1 at 127.0.0.1:") || !strings.Contains(res.Left[0].Why, c.left)) {
				t.Errorf("what is left is not named: %+v", res.Left[0])
			}
			if res.Settle != nil {
				res.Settle()
			}
			if files, _ := os.ReadDir(dir); (len(files) > 0) != c.detached {
				t.Errorf("sidecars: %v", files)
			}
		})
	}
}

// A stop after a lost answer ends the remote task that may exist.
func TestStopWhileCreating(t *testing.T) {
	a := newAgent(t)
	a.Fail = func(method string) error {
		if method == a2a.SendMessage { // the task was begun, and the answer is lost
			return a2atest.ErrBreak
		}
		return nil
	}
	d, _ := driverOf(t, a, func(c *Config) { c.Base, c.Most = time.Hour, time.Hour })
	stop := runs(t, d, tasktest.NewHost(t, task.RemoteAgent, job(t)))
	followed(t, a, a2a.SendMessage)
	res, err := stop(&task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
	if tasks := a.Tasks(); err == nil || len(res.Left) > 0 || len(tasks) != 1 || tasks[0].Status.State != a2a.Canceled {
		t.Errorf("tasks %+v, left %v: %v", tasks, res.Left, err)
	}
}

func TestSteer(t *testing.T) {
	a := newAgent(t)
	d, _ := driverOf(t, a)
	h := tasktest.NewHost(t, task.RemoteAgent, job(t))
	stop := runs(t, d, h)
	followed(t, a, a2a.SubscribeToTask)
	if err := d.Steer(t.Context(), h.Record().ID, "look here too"); err != nil || a2a.Text(a.Tasks()[0].History[1].Parts) != "look here too" {
		t.Errorf("sent %+v, %v", a.Tasks()[0].History, err)
	}
	if d.Steer(t.Context(), "r00000000", "x") == nil {
		t.Error("a message to an unknown task was taken")
	}
	_, _ = stop(task.ErrStopRequested)
	if d.Steer(t.Context(), h.Record().ID, "x") == nil {
		t.Error("a message to a task that has ended was taken")
	}
}

func TestOffline(t *testing.T) {
	t.Run("passes", func(t *testing.T) {
		a := newAgent(t)
		var failed atomic.Int32
		a.Begin = completed("printed")
		a.Fail = func(string) error {
			if failed.Add(1) <= 3 {
				return &a2a.StatusError{Code: http.StatusServiceUnavailable}
			}
			return nil
		}
		d, _ := driverOf(t, a)
		h := tasktest.NewHost(t, task.RemoteAgent, job(t))
		if _, err := d.Run(t.Context(), h); err != nil || h.Printed() != "printed\n" || len(a.Tasks()) != 1 {
			t.Errorf("%v, output %q, %d tasks", err, h.Printed(), len(a.Tasks()))
		}
	})
	for name, c := range map[string]struct {
		err    error
		limit  time.Duration
		reason task.Reason
	}{
		"unreachable": {a2atest.ErrBreak, time.Nanosecond, reasonUnreachable},
		"refused":     {&a2a.StatusError{Code: http.StatusUnauthorized}, time.Hour, reasonRefused},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			a.Fail = func(method string) error {
				if method == a2a.SendMessage {
					return nil
				}
				return c.err
			}
			d, _ := driverOf(t, a, func(cfg *Config) { cfg.Settings.Offline = c.limit })
			res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t)))
			var fail *task.FailError
			if !errors.As(err, &fail) || fail.Reason != c.reason || !strings.Contains(err.Error(), "remote task far-1 at 127.0.0.1:") || len(res.Left) != 1 {
				t.Errorf("%v, left %v", err, res.Left)
			}
		})
	}
}

// RA-05: a checker is asked after each poll, and its text is the answer. It is asked though the remote task has
// ended.
func TestChecker(t *testing.T) {
	a := newAgent(t)
	a.Begin = completed("", says("pushed"))
	d, _ := driverOf(t, a)
	var got []string
	asked := func(_ context.Context, metadata json.RawMessage, now a2a.News) (*string, error) {
		got = append(got, fmt.Sprintf("%s %q", metadata, now.Said))
		if text := "merged"; len(got) == 3 {
			return &text, nil
		}
		return nil, nil
	}
	for _, one := range []string{"background-pr", "autofix-pr"} { // one for each type; a later one replaces it
		d.Config.Checkers[one] = func(context.Context, json.RawMessage, a2a.News) (*string, error) {
			t.Error("another checker was asked")
			return nil, nil
		}
	}
	d.Config.Checkers["autofix-pr"] = asked
	input := job(t, ofType("autofix-pr"), func(j *Job) { j.Metadata = json.RawMessage(`{"pr":7}`) })
	res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, input))
	if want := []string{`{"pr":7} ["pushed"]`, `{"pr":7} []`, `{"pr":7} []`}; err != nil || res.Text != "merged" || !slices.Equal(got, want) {
		t.Errorf("%q, %v after %q", res.Text, err, got)
	}
	if sent := a.Tasks()[0].History[0].Metadata; fmt.Sprint(sent["pr"]) != "7" {
		t.Errorf("the agent was given the metadata %v", sent)
	}

	got = []string{"", ""} // after a restart it has the metadata, and what was said so far
	res, err = d.Run(t.Context(), adopted(tasktest.NewHost(t, task.RemoteAgent, nil), `{"v":1,"state":"running","service":"there","session":"far-1","type":"autofix-pr","metadata":{"pr":7}}`))
	if err != nil || res.Text != "merged" || got[2] != `{"pr":7} ["pushed"]` {
		t.Errorf("after a restart %q, %v, %q", res.Text, err, got)
	}
}

// A checker that fails is asked again, with the same messages, and for a limited time.
func TestCheckerFails(t *testing.T) {
	a := newAgent(t)
	a.Begin = says("pushed")
	d, _ := driverOf(t, a)
	n := 0
	failing := func(_ context.Context, m json.RawMessage, now a2a.News) (*string, error) {
		if n++; m != nil || len(now.Said) != 1 {
			t.Errorf("metadata %s, messages %q", m, now.Said)
		}
		if text := "at last"; n == 3 {
			return &text, nil
		}
		return nil, errors.New("exit code 1")
	}
	a.Polls = true // each poll has all messages
	d.Config.Checkers[control.RemoteAgent] = failing
	if res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t))); err != nil || res.Text != "at last" {
		t.Errorf("%q, %v", res.Text, err)
	}
	if a.Tasks()[0].Status.State != a2a.Canceled {
		t.Errorf("a remote task that is not needed any more was left: %+v", a.Tasks())
	}
	n = -1000
	d, _ = driverOf(t, a, func(c *Config) { c.Checkers[control.RemoteAgent], c.Settings.Offline = failing, time.Nanosecond })
	_, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t)))
	var fail *task.FailError
	if !errors.As(err, &fail) || fail.Reason != reasonChecker {
		t.Errorf("%v", err)
	}
}

// RA-11, RA-12: the output of a hook takes precedence over what the agent says. Both may be split anywhere.
func TestReview(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(*a2a.Task)
		want  string
	}{
		"hook": {func(f *a2a.Task) {
			says("<remote-review>said</remote-review>")(f)
			prints("hook_progress", "x<remote-review>by the hook</remote-review>")(f)
		}, "by the hook"},
		"split": {func(f *a2a.Task) {
			prints("hook_progress", "<remote-rev")(f)
			says("between")(f)
			prints("hook_progress", "iew>one ")(f)
			prints("hook_progress", "two</remote-review>")(f)
		}, "one two"},
		"both":   {completed("<remote-review>x</remote-review>", prints("hook_progress", "<remote-review>by the hook</remote-review>")), "by the hook"},
		"result": {completed("so:\n<remote-review>found</remote-review>"), "found"},
		"said":   {completed("", says("<remote-review>sa\nid</remote-review>")), "sa\nid"},
		"none":   {completed("the result", says("nothing found")), "the result"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			a.Begin = c.begin
			d, _ := driverOf(t, a)
			res, err := d.Run(waittest.Context(t, patience), tasktest.NewHost(t, task.RemoteAgent, job(t, ofType(control.Ultrareview))))
			if err != nil || res.Text != c.want {
				t.Errorf("%q, %v", res.Text, err)
			}
		})
	}
}

// told notes the notifications and the progress.
type told struct {
	task.Host
	texts []string
	shown []task.Progress
}

func (h *told) Tell(_ context.Context, _ task.MessageKind, text string, _ task.Priority) error {
	h.texts = append(h.texts, text)
	return nil
}

func (h *told) Progress(p task.Progress) { h.shown = append(h.shown, p) }

// The owner is notified of each phase in which the agent waits; a plan that is ready is named by the agent.
func TestPhases(t *testing.T) {
	plan := func(f *a2a.Task) {
		a2atest.Say(f, a2a.InputRequired, "The plan: paint it")
		f.Status.Message.Metadata = map[string]any{a2a.PhaseKey: a2a.PlanReady}
	}
	a := newAgent(t)
	d, _ := driverOf(t, a)
	h := &told{Host: tasktest.NewHost(t, task.RemoteAgent, job(t, ofType("ultraplan")))}
	steps := []func(*a2a.Task){says("thinking"), func(f *a2a.Task) { a2atest.Say(f, a2a.InputRequired, "Which database?") },
		says("going on"), plan, completed("the plan")}
	a.Polls = true
	a.Fail = func(method string) error {
		if method == a2a.GetTask && len(steps) > 0 {
			a.Change(steps[0])
			steps = steps[1:]
		}
		return nil
	}
	if _, err := d.Run(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if len(h.texts) != 2 || !strings.Contains(h.texts[0], "needs input") || !strings.Contains(h.texts[0], "Which database?") || !strings.Contains(h.texts[1], "plan ready") {
		t.Errorf("told %q", h.texts)
	}
	at := slices.IndexFunc(h.shown, func(p task.Progress) bool { return p.Phase == a2a.PlanReady })
	if at < 0 || h.shown[at].Message != "The plan: paint it" || h.shown[at].Remote == nil || h.shown[at].Remote.ID != "far-1" || h.shown[at].Remote.Type != "ultraplan" {
		t.Errorf("shown %+v", h.shown)
	}

	a.Fail, a.Begin = nil, plan
	c, err := d.client("there")
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.Start(t.Context(), a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{a2a.TextPart("x")}}, false)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	again := &told{Host: adopted(tasktest.NewHost(t, task.RemoteAgent, nil), `{"v":1,"state":"running","service":"there","session":"far-2","type":"ultraplan"}`,
		func(r *task.Record) { r.Progress = &task.Progress{Phase: a2a.PlanReady} })}
	stop := runs(t, d, again)
	if !waittest.Until(patience, func() bool { return a.Calls(a2a.GetTask) > 10 }) {
		t.Fatal("the task is not followed")
	}
	if _, err := stop(task.ErrClosing); !errors.Is(err, task.ErrDetached) || len(again.texts) > 0 {
		t.Errorf("told again after a restart: %q, %v", again.texts, err)
	}
}

// small is a host whose output has a limit.
type small struct {
	*tasktest.Host
}

func (h small) Output() task.Output { return limited(h) }

type limited struct{ *tasktest.Host }

func (limited) Limit() int64 { return 10 }

func TestOutputLimit(t *testing.T) {
	a := newAgent(t)
	a.Begin = prints("all", strings.Repeat("x", 100))
	d, _ := driverOf(t, a)
	h := small{tasktest.NewHost(t, task.RemoteAgent, job(t))}
	_, err := d.Run(t.Context(), h)
	var fail *task.FailError
	if !errors.As(err, &fail) || fail.Reason != task.ReasonOutputLimit || a.Tasks()[0].Status.State != a2a.Canceled || len(h.Printed()) != 10 {
		t.Errorf("%v, %q, %+v", err, h.Printed(), a.Tasks())
	}
}

// ordered is a host that notes in which order it hears of a phase.
type ordered struct {
	*tasktest.Host
	heard []string
}

func (o *ordered) Tell(ctx context.Context, kind task.MessageKind, text string, p task.Priority) error {
	o.heard = append(o.heard, "told")
	return o.Host.Tell(ctx, kind, text, p)
}

func (o *ordered) Progress(p task.Progress) {
	if p.Phase == a2a.NeedsInput {
		o.heard = append(o.heard, "shown")
	}
	o.Host.Progress(p)
}

// The record shows a phase only after the owner was notified: a host that dies in between must not swallow the
// notification.
func TestToldBeforeShown(t *testing.T) {
	a := newAgent(t)
	a.Begin = func(f *a2a.Task) { a2atest.Say(f, a2a.InputRequired, "Which?") }
	d, _ := driverOf(t, a)
	h := &ordered{Host: tasktest.NewHost(t, task.RemoteAgent, job(t))}
	stop := runs(t, d, h)
	if !waittest.Until(patience, func() bool { r := h.Record(); return r.Progress != nil && r.Progress.Phase != "" }) {
		t.Fatal("no phase is shown")
	}
	if _, _ = stop(task.ErrClosing); len(h.heard) == 0 || h.heard[0] != "told" {
		t.Errorf("%q", h.heard)
	}
}
