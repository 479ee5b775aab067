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
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/task/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a service in memory that a test steers. It is what the driver asks;
// the real client and server are tested in packages remote and remoteserver, and
// all together in cmd/drover.
type place struct {
	mu       sync.Mutex
	keys     map[string]string // session by key
	creates  int
	prompts  []string // of the requests for a session
	polls    int
	archived []string
	sent     []string
	output   string
	seen     int64 // of output, by the last poll
	events   []remoteapi.Event
	status   remoteapi.Status
	result   string
	failure  string
	phase    string
	fail     func(call string) error // nil: nothing fails
}

func newPlace() *place {
	return &place{keys: map[string]string{}, status: remoteapi.Running}
}

func (p *place) check(call string) error {
	if p.fail == nil {
		return nil
	}
	return p.fail(call)
}

func (p *place) Host() string { return "there:1" }

func (p *place) Create(_ context.Context, r remoteapi.Request) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates++
	p.prompts = append(p.prompts, r.Prompt)
	if p.keys[r.Key] == "" {
		p.keys[r.Key] = fmt.Sprintf("s%d", len(p.keys)+1)
	}
	return p.keys[r.Key], p.check("create")
}

func (p *place) Poll(ctx context.Context, _, cursor string, hold time.Duration) (remoteapi.Page, error) {
	late := time.NewTimer(hold)
	defer late.Stop()
	for {
		p.mu.Lock()
		p.polls++
		err := p.check("poll")
		at, _ := strconv.Atoi(cursor)
		page := remoteapi.Page{Events: slices.Clone(p.events[at:]), Cursor: strconv.Itoa(len(p.events)), Status: p.status, Phase: p.phase, OutputBytes: int64(len(p.output)), Result: p.result, Error: p.failure}
		grew := page.OutputBytes > p.seen
		p.seen = page.OutputBytes
		p.mu.Unlock()
		if err != nil || grew || len(page.Events) > 0 || page.Status.Done() || hold <= 0 {
			return page, err
		}
		select {
		case <-late.C:
			hold = 0
		case <-ctx.Done():
			return page, context.Cause(ctx)
		}
	}
}

func (p *place) Output(_ context.Context, _ string, offset int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check("output"); err != nil {
		return nil, err
	}
	rest := p.output[min(int(offset), len(p.output)):]
	return []byte(rest[:min(len(rest), 7)]), nil // in small pieces
}

func (p *place) Send(_ context.Context, _, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, text)
	return p.check("send")
}

func (p *place) Archive(_ context.Context, session string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check("archive"); err != nil {
		return err
	}
	p.archived = append(p.archived, session)
	return nil
}

// driver makes one with quick polls and a sidecar in a folder of the test.
func (p *place) driver(t *testing.T, change ...func(*Config)) (*Driver, string) {
	dir := t.TempDir()
	c := Config{Open: func(name string) (Service, error) {
		if name != "there" {
			return nil, fmt.Errorf("there is no service %q", name)
		}
		return p, nil
	}, Sidecar: func(id task.ID) string { return filepath.Join(dir, string(id)+".json") }, Base: time.Millisecond, Most: 4 * time.Millisecond, Offline: time.Minute}
	for _, f := range change {
		f(&c)
	}
	return New(c), dir
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

func ofType(t remoteapi.Type) func(*Job) { return func(j *Job) { j.Type = t } }

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

func TestCheck(t *testing.T) {
	d, _ := newPlace().driver(t)
	for _, bad := range []string{`{"service":"","prompt":"x"}`, `{"service":"there","prompt":" "}`, `{"service":"there","prompt":"x","type":"cloud"}`,
		`{"service":"there","prompt":"x","metadata":[1]}`, `{"service":"there","prompt":"x","metadata":null,"more":1}`,
		`{"service":"there","prompt":"` + strings.Repeat("x", maxPrompt+1) + `"}`} {
		if d.Check(json.RawMessage(bad)) == nil {
			t.Errorf("accepted: %.80s", bad)
		}
	}
	for _, kind := range append(remoteapi.Types(), "") {
		if err := d.Check(job(t, ofType(kind))); err != nil {
			t.Errorf("type %q: %v", kind, err)
		}
	}
}

func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		status remoteapi.Status
		want   task.Status
		reason task.Reason
		text   string
		says   string
	}{
		"completed": {remoteapi.Completed, task.Completed, task.ReasonDone, "the answer", ""},
		"failed":    {remoteapi.Failed, task.Failed, reasonRemote, "", "it broke"},
		"archived":  {remoteapi.Archived, task.Killed, reasonArchived, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace()
			p.status, p.result, p.failure, p.output = c.status, "the answer", "it broke", "all that was printed, in several pieces"
			d, dir := p.driver(t)
			h := tasktest.NewHost(t, task.RemoteAgent, job(t))
			res, err := d.Run(t.Context(), h)
			change, ends := lifecycle.Ending(nil, res, err)
			if got, _ := lifecycle.Apply(task.Record{Status: task.Running}, change); !ends || got.Status != c.want || got.Cause.Reason != c.reason || !strings.Contains(got.Error, c.says) {
				t.Errorf("recorded as %+v", got)
			}
			if c.text != "" && res.Text != c.text {
				t.Errorf("answer %q", res.Text)
			}
			if h.Printed() != p.output {
				t.Errorf("output %q", h.Printed())
			}
			if len(p.archived) > 0 {
				t.Error("a session that had ended was archived")
			}
			res.Settle()
			if files, _ := os.ReadDir(dir); len(files) > 0 {
				t.Errorf("left: %v", files)
			}
		})
	}
}

// A sidecar is there before the first poll, with what is needed to find the
// session again.
func TestSidecar(t *testing.T) {
	p := newPlace()
	d, dir := p.driver(t)
	h := tasktest.NewHost(t, task.RemoteAgent, job(t, ofType(remoteapi.BackgroundPR), func(j *Job) { j.Metadata = json.RawMessage(`{"pr":7}`) }))
	var at string
	p.fail = func(call string) error {
		if call == "poll" && at == "" {
			data, err := os.ReadFile(filepath.Join(dir, string(h.Record().ID)+".json"))
			at = strings.TrimSpace(string(data))
			if err != nil {
				t.Error(err)
			}
			p.status = remoteapi.Completed
		}
		return nil
	}
	res, err := d.Run(t.Context(), h)
	if want := fmt.Sprintf(`{"taskId":%q,"sessionId":"s1","remoteTaskType":"background-pr","remoteTaskMetadata":{"pr":7}}`, h.Record().ID); err != nil || at != want {
		t.Errorf("sidecar %s, want %s; %v", at, want, err)
	}
	if _, err := os.Stat(filepath.Join(dir, string(h.Record().ID)+".json")); err != nil {
		t.Error("it is gone before the end is durable")
	}
	res.Settle()
	if _, err := os.Stat(filepath.Join(dir, string(h.Record().ID)+".json")); err == nil {
		t.Error("it is there after the end")
	}
}

// crash is a fault of the host at one of the steps by which a session becomes
// known.
type crash struct {
	*tasktest.Host
	at    int
	saves int
}

var errCrash = errors.New("crash")

func (c *crash) Checkpoint(ctx context.Context, state []byte) error {
	c.saves++
	if c.saves == c.at {
		panic(errCrash)
	}
	return c.Host.Checkpoint(ctx, state)
}

// Whenever a host dies, there is one session, and the next host has it. Who asks for it
// again asks for the same, though the record has a part of a long prompt only.
func TestCrash(t *testing.T) {
	prompt := strings.Repeat("do it\n", 10_000)
	for at := 1; at <= 3; at++ {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			p := newPlace()
			p.output = "before the crash, "
			d, _ := p.driver(t)
			h := &crash{Host: tasktest.NewHost(t, task.RemoteAgent, job(t, func(j *Job) { j.Prompt = prompt })), at: at}
			p.fail = func(call string) error {
				if call == "poll" && at == 3 && len(h.Printed()) > 0 {
					panic(errCrash)
				}
				return nil
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("it did not crash")
					}
					p.fail = nil
				}()
				_, _ = d.Run(t.Context(), h)
			}()
			if at == 3 {
				p.mu.Unlock() // a crash in a poll leaves it locked
			}
			p.output += "and after it"
			p.status, p.result = remoteapi.Completed, "done"
			rec := h.Record()
			next, _ := p.driver(t)
			if got := next.Adopts(rec); got != (at > 1) {
				t.Fatalf("adopted: %v", got)
			}
			if at == 1 {
				if p.creates > 0 {
					t.Error("a session was made before a checkpoint tells of it")
				}
				return
			}
			next.Config.Sidecar = d.Config.Sidecar
			if len(rec.Checkpoint) > 1000 != (at == 2) {
				t.Errorf("the checkpoint has %d bytes", len(rec.Checkpoint))
			}
			rec.Prompt = lifecycle.ShortPrompt(prompt)
			res, err := next.Run(t.Context(), old{h.Host, rec})
			if err != nil || res.Text != "done" || len(p.keys) != 1 {
				t.Errorf("%q, %v, %d sessions", res.Text, err, len(p.keys))
			}
			if h.Printed() != p.output {
				t.Errorf("output %q, want %q", h.Printed(), p.output)
			}
			for i, got := range p.prompts {
				if got != prompt {
					t.Errorf("request %d asks for %d bytes, want %d", i, len(got), len(prompt))
				}
			}
		})
	}
}

// A host that does not know whether there is a session asks for the same again. What
// older ones have noted has the prompt in the record only.
func TestAdoptWithoutSidecar(t *testing.T) {
	for checkpoint, prompt := range map[string]string{
		`{"v":1,"state":"creating","service":"there","type":"remote-agent"}`:                                    "do it",
		`{"v":1,"state":"creating","service":"there","type":"remote-agent","prompt":"do it, and all the rest"}`: "do it, and all the rest",
	} {
		p := newPlace()
		p.status, p.result = remoteapi.Completed, "done"
		d, _ := p.driver(t)
		h := tasktest.NewHost(t, task.RemoteAgent, nil)
		if _, err := p.Create(t.Context(), remoteapi.Request{Key: string(h.Record().Run), Prompt: prompt}); err != nil {
			t.Fatal(err)
		}
		res, err := d.Run(t.Context(), adopted(h, checkpoint))
		if err != nil || res.Text != "done" || len(p.keys) != 1 || p.creates != 2 || p.prompts[1] != prompt {
			t.Errorf("%s: %q, %v, %d sessions by %d requests, %q", checkpoint, res.Text, err, len(p.keys), p.creates, p.prompts)
		}
	}
}

func TestBadCheckpoints(t *testing.T) {
	p := newPlace()
	d, _ := p.driver(t)
	for _, bad := range []string{`{`, `{}`, `{"v":2}`, `{"v":1,"state":"running","service":"there"}`, `{"v":1,"state":"running","service":"there","session":"../x"}`,
		`{"v":1,"state":"dreaming","service":"there"}`, `{"v":1,"state":"running","service":"elsewhere","session":"s1"}`} {
		if _, err := d.Run(t.Context(), adopted(tasktest.NewHost(t, task.RemoteAgent, nil), bad)); !errors.Is(err, task.ErrLost) {
			t.Errorf("%s: %v, want ErrLost", bad, err)
		}
	}
	if p.creates+p.polls > 0 {
		t.Error("the service was asked")
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
		case <-time.After(10 * time.Second):
			t.Fatal("it did not end")
			return task.Result{}, nil
		}
	}
}

// polled waits until the session was asked for n times.
func (p *place) polled(t *testing.T, n int) {
	t.Helper()
	late := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		got := p.polls
		p.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d polls, want %d", got, n)
		}
	}
}

func TestStop(t *testing.T) {
	stopped := &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}
	for name, c := range map[string]struct {
		cause    error
		broken   error // of the archive call
		archived int
		left     bool
		detached bool
	}{
		"stop":    {cause: stopped, archived: 1},
		"timeout": {cause: task.ErrTimeout, archived: 1},
		"closing": {cause: task.ErrClosing, detached: true},
		"offline": {cause: stopped, broken: errors.New("no route"), left: true},
		"gone":    {cause: stopped, broken: &remoteapi.StatusError{Code: http.StatusNotFound}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace()
			d, dir := p.driver(t)
			p.fail = func(call string) error {
				if call == "archive" {
					return c.broken
				}
				return nil
			}
			h := tasktest.NewHost(t, task.RemoteAgent, job(t))
			stop := runs(t, d, h)
			p.polled(t, 1)
			res, err := stop(c.cause)
			if len(p.archived) != c.archived || (len(res.Left) > 0) != c.left || errors.Is(err, task.ErrDetached) != c.detached {
				t.Errorf("archived %v, left %+v, %v", p.archived, res.Left, err)
			}
			if c.left && (!strings.Contains(res.Left[0].Command, "s1 at there:1") || !strings.Contains(res.Left[0].Why, "no route")) {
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

// A stop while a session is being made ends the session that may be there.
func TestStopWhileCreating(t *testing.T) {
	p := newPlace()
	asked := make(chan struct{}, 100)
	p.fail = func(call string) error {
		if call != "create" {
			return nil
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		if p.creates == 1 { // it was made, and its answer was lost
			return errors.New("connection reset")
		}
		return nil
	}
	d, _ := p.driver(t, func(c *Config) { c.Base, c.Most = time.Hour, time.Hour })
	stop := runs(t, d, tasktest.NewHost(t, task.RemoteAgent, job(t)))
	<-asked
	res, err := stop(&task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
	if err == nil || len(res.Left) > 0 || !slices.Equal(p.archived, []string{"s1"}) || len(p.keys) != 1 {
		t.Errorf("archived %v of %d, left %v: %v", p.archived, len(p.keys), res.Left, err)
	}
}

func TestSteer(t *testing.T) {
	p := newPlace()
	d, _ := p.driver(t)
	h := tasktest.NewHost(t, task.RemoteAgent, job(t))
	stop := runs(t, d, h)
	p.polled(t, 1)
	if err := d.Steer(t.Context(), h.Record().ID, "look here too"); err != nil || !slices.Equal(p.sent, []string{"look here too"}) {
		t.Errorf("sent %q, %v", p.sent, err)
	}
	if d.Steer(t.Context(), "r00000000", "x") == nil {
		t.Error("a message to a task that is not there was taken")
	}
	_, _ = stop(task.ErrStopRequested)
	if d.Steer(t.Context(), h.Record().ID, "x") == nil {
		t.Error("a message to a task that has ended was taken")
	}
}

func TestOffline(t *testing.T) {
	t.Run("passes", func(t *testing.T) {
		p := newPlace()
		left := 3
		p.fail = func(call string) error {
			if left > 0 && call != "archive" {
				left--
				return &remoteapi.StatusError{Code: http.StatusServiceUnavailable}
			}
			p.status, p.output = remoteapi.Completed, "printed"
			return nil
		}
		d, _ := p.driver(t)
		h := tasktest.NewHost(t, task.RemoteAgent, job(t))
		if _, err := d.Run(t.Context(), h); err != nil || h.Printed() != "printed" || len(p.keys) != 1 {
			t.Errorf("%v, output %q, %d sessions", err, h.Printed(), len(p.keys))
		}
	})
	for name, c := range map[string]struct {
		err    error
		limit  time.Duration
		reason task.Reason
	}{
		"unreachable": {errors.New("no route"), time.Nanosecond, reasonUnreachable},
		"refused":     {&remoteapi.StatusError{Code: http.StatusUnauthorized}, time.Hour, reasonRefused},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace()
			p.fail = func(call string) error {
				if call == "create" {
					return nil
				}
				return c.err
			}
			d, _ := p.driver(t, func(cfg *Config) { cfg.Offline = c.limit })
			res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t)))
			var fail *task.FailError
			if !errors.As(err, &fail) || fail.Reason != c.reason || !strings.Contains(err.Error(), "remote session s1 at there:1 may go on") {
				t.Errorf("%v", err)
			}
			if len(res.Left) != 1 {
				t.Errorf("left %v", res.Left)
			}
		})
	}
}

// RA-05: a checker is asked after each poll, and its text is the answer.
func TestChecker(t *testing.T) {
	p := newPlace()
	p.status = remoteapi.Completed // the session has ended, the work has not
	p.events = []remoteapi.Event{{Type: remoteapi.AssistantEvent, Text: "pushed"}}
	d, _ := p.driver(t)
	var got []string
	asked := func(_ context.Context, metadata json.RawMessage, page remoteapi.Page) (*string, error) {
		got = append(got, fmt.Sprintf("%s %d", metadata, len(page.Events)))
		if text := "merged"; len(got) == 3 {
			return &text, nil
		}
		return nil, nil
	}
	d.Config.Checkers.Register(remoteapi.AutofixPR, remoteapi.CheckerFunc(func(context.Context, json.RawMessage, remoteapi.Page) (*string, error) {
		t.Error("a checker that was replaced was asked")
		return nil, nil
	}))
	d.Config.Checkers.Register(remoteapi.AutofixPR, remoteapi.CheckerFunc(asked))
	input := job(t, ofType(remoteapi.AutofixPR), func(j *Job) { j.Metadata = json.RawMessage(`{"pr":7}`) })
	res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, input))
	if want := []string{`{"pr":7} 1`, `{"pr":7} 0`, `{"pr":7} 0`}; err != nil || res.Text != "merged" || !slices.Equal(got, want) {
		t.Errorf("%q, %v after %q", res.Text, err, got)
	}

	got = []string{"", ""} // after a restart it has the metadata, and what happened so far
	res, err = d.Run(t.Context(), adopted(tasktest.NewHost(t, task.RemoteAgent, nil), `{"v":1,"state":"running","service":"there","session":"s1","type":"autofix-pr","metadata":{"pr":7}}`))
	if err != nil || res.Text != "merged" || got[2] != `{"pr":7} 1` {
		t.Errorf("after a restart %q, %v, %q", res.Text, err, got)
	}
}

// A checker that cannot say is asked again, with what it was asked, and for so
// long only.
func TestCheckerFails(t *testing.T) {
	p := newPlace()
	p.events = []remoteapi.Event{{Type: remoteapi.AssistantEvent, Text: "pushed"}}
	d, _ := p.driver(t)
	n := 0
	d.Config.Checkers.Register(remoteapi.Agent, remoteapi.CheckerFunc(func(_ context.Context, m json.RawMessage, page remoteapi.Page) (*string, error) {
		if n++; m != nil || len(page.Events) != 1 {
			t.Errorf("metadata %s, events %v", m, page.Events)
		}
		if text := "at last"; n == 3 {
			return &text, nil
		}
		return nil, errors.New("exit code 1")
	}))
	if res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t))); err != nil || res.Text != "at last" {
		t.Errorf("%q, %v", res.Text, err)
	}
	if !slices.Equal(p.archived, []string{"s1"}) {
		t.Errorf("a session that nobody needs any more was left: archived %v", p.archived)
	}
	n = -1000
	d, _ = p.driver(t, func(c *Config) { c.Checkers, c.Offline = d.Config.Checkers, time.Nanosecond })
	_, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t)))
	var fail *task.FailError
	if !errors.As(err, &fail) || fail.Reason != reasonChecker {
		t.Errorf("%v", err)
	}
}

func TestReview(t *testing.T) {
	hook := func(text string) remoteapi.Event { return remoteapi.Event{Type: remoteapi.HookEvent, Text: text} }
	said := func(text string) remoteapi.Event { return remoteapi.Event{Type: remoteapi.AssistantEvent, Text: text} }
	for name, c := range map[string]struct {
		events []remoteapi.Event
		status remoteapi.Status
		want   string
	}{
		"hook":  {[]remoteapi.Event{said("<remote-review>said</remote-review>"), hook("x<remote-review>by the hook</remote-review>")}, remoteapi.Running, "by the hook"},
		"split": {[]remoteapi.Event{hook("<remote-rev"), said("between"), hook("iew>one "), hook("two</remote-review>")}, remoteapi.Running, "one two"},
		"said":  {[]remoteapi.Event{said("<remote-review>sa"), said("id</remote-review>")}, remoteapi.Completed, "said"},
		"none":  {[]remoteapi.Event{said("nothing found")}, remoteapi.Completed, "the result"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace()
			p.events, p.status, p.result = c.events, c.status, "the result"
			d, _ := p.driver(t)
			res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t, ofType(remoteapi.Ultrareview))))
			if err != nil || res.Text != c.want {
				t.Errorf("%q, %v", res.Text, err)
			}
		})
	}
}

// told notes what the owner hears.
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

func TestPhases(t *testing.T) {
	p := newPlace()
	d, _ := p.driver(t)
	h := &told{Host: tasktest.NewHost(t, task.RemoteAgent, job(t, ofType(remoteapi.Ultraplan)))}
	steps := []func(){
		func() { p.phase = "thinking" },
		func() {
			p.events = append(p.events, remoteapi.Event{Type: remoteapi.AssistantEvent, Text: "Which database?"})
			p.phase = remoteapi.NeedsInput
		},
		func() {
			p.events = append(p.events, remoteapi.Event{Type: remoteapi.ToolEvent, Tool: "Read", Input: json.RawMessage(`{"file":"a"}`)}, remoteapi.Event{Type: remoteapi.UsageEvent, Tokens: 1200})
		},
		func() { p.phase = remoteapi.PlanReady },
		func() { p.status, p.result = remoteapi.Completed, "the plan" },
	}
	p.fail = func(call string) error {
		if call == "poll" && len(steps) > 0 {
			steps[0]()
			steps = steps[1:]
		}
		return nil
	}
	d.Config.Hold = -1
	if _, err := d.Run(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if len(h.texts) != 2 || !strings.Contains(h.texts[0], "needs input") || !strings.Contains(h.texts[0], "Which database?") || !strings.Contains(h.texts[1], "plan ready") {
		t.Errorf("told %q", h.texts)
	}
	last := h.shown[len(h.shown)-1]
	if last.Phase != remoteapi.PlanReady || last.ToolUseCount != 1 || last.TokenCount != 1200 || last.LastActivity == nil || last.LastActivity.ToolName != "Read" ||
		last.Remote == nil || *last.Remote != (task.RemoteSession{ID: "s1", Type: "ultraplan", Host: "there:1"}) {
		t.Errorf("shown %+v", last)
	}

	again := &told{Host: adopted(tasktest.NewHost(t, task.RemoteAgent, nil), `{"v":1,"state":"running","service":"there","session":"s1","type":"ultraplan"}`,
		func(r *task.Record) { r.Progress = &task.Progress{Phase: remoteapi.PlanReady} })}
	if _, err := d.Run(t.Context(), again); err != nil || len(again.texts) > 0 {
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
	p := newPlace()
	p.output = strings.Repeat("x", 100)
	d, _ := p.driver(t)
	_, err := d.Run(t.Context(), small{tasktest.NewHost(t, task.RemoteAgent, job(t))})
	var fail *task.FailError
	if !errors.As(err, &fail) || fail.Reason != task.ReasonOutputLimit || len(p.archived) != 1 {
		t.Errorf("%v, archived %v", err, p.archived)
	}
}

// A service that says that more is there and gives nothing is not believed.
func TestMissingOutput(t *testing.T) {
	p := newPlace()
	d, _ := p.driver(t, func(c *Config) { c.Offline = time.Nanosecond })
	d.Config.Open = nil
	short := short{p}
	p.status, p.output = remoteapi.Completed, "there"
	_, err := d.For(func(string) (Service, error) { return short, nil }).Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t)))
	if err == nil || !strings.Contains(err.Error(), "6 bytes of output are said to be there, and only 5 come") {
		t.Error(err)
	}
}

type short struct{ *place }

func (s short) Poll(ctx context.Context, session, cursor string, hold time.Duration) (remoteapi.Page, error) {
	p, err := s.place.Poll(ctx, session, cursor, hold)
	p.OutputBytes++
	return p, err
}

// endless is a service whose pages never end.
type endless struct {
	*place
	event remoteapi.Event
	polls int
	give  context.CancelCauseFunc // ends the test
}

func (e *endless) Poll(ctx context.Context, _, _ string, _ time.Duration) (remoteapi.Page, error) {
	if e.polls++; e.polls > 1000 {
		e.give(errors.New("it reads on for ever"))
	}
	if ctx.Err() != nil {
		return remoteapi.Page{}, context.Cause(ctx)
	}
	return remoteapi.Page{Events: []remoteapi.Event{e.event}[:min(len(e.event.Type), 1)], More: true, Cursor: strconv.Itoa(e.polls), Status: remoteapi.Running}, nil
}

// A service whose pages never end, small or large, is read a part at a time, and
// costs bounded memory.
func TestEndlessPages(t *testing.T) {
	for name, event := range map[string]remoteapi.Event{"empty": {}, "large": {Type: remoteapi.AssistantEvent, Text: strings.Repeat("x", 1<<20)}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			e := &endless{place: newPlace(), event: event, give: cancel}
			d, _ := e.driver(t, func(c *Config) { c.Open = func(string) (Service, error) { return e, nil } })
			d.Config.Checkers.Register(remoteapi.Agent, remoteapi.CheckerFunc(func(_ context.Context, _ json.RawMessage, p remoteapi.Page) (*string, error) {
				size := 0
				for _, e := range p.Events {
					size += len(e.Text)
				}
				if size > 10<<20 || event.Type != "" && size == 0 {
					t.Errorf("the checker is given %d bytes", size)
				}
				text := "enough"
				return &text, nil
			}))
			if res, err := d.Run(ctx, tasktest.NewHost(t, task.RemoteAgent, job(t))); err != nil || res.Text != "enough" {
				t.Errorf("%q, %v", res.Text, err)
			}
		})
	}
}

// A session that is done is so when all of what led there was read.
func TestReviewBehindManyPages(t *testing.T) {
	p := newPlace()
	p.status, p.result = remoteapi.Completed, "not this"
	for range maxEvents {
		p.events = append(p.events, remoteapi.Event{Type: remoteapi.UsageEvent, Tokens: 1})
	}
	p.events = append(p.events, remoteapi.Event{Type: remoteapi.HookEvent, Text: "<remote-review>this</remote-review>"})
	d, _ := p.driver(t, func(c *Config) { c.Open = func(string) (Service, error) { return paged{p}, nil } })
	res, err := d.Run(t.Context(), tasktest.NewHost(t, task.RemoteAgent, job(t, ofType(remoteapi.Ultrareview))))
	if err != nil || res.Text != "this" {
		t.Errorf("%q, %v", res.Text, err)
	}
}

// paged is a service that gives some events at a time.
type paged struct{ *place }

func (p paged) Poll(ctx context.Context, session, cursor string, hold time.Duration) (remoteapi.Page, error) {
	at, _ := strconv.Atoi(cursor)
	page, err := p.place.Poll(ctx, session, cursor, hold)
	if few := maxEvents / 2; len(page.Events) > few {
		page.Events, page.More, page.Cursor = page.Events[:few], true, strconv.Itoa(at+few)
	}
	return page, err
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
	if p.Phase != "" {
		o.heard = append(o.heard, "shown")
	}
	o.Host.Progress(p)
}

// The record says that the owner was told of a phase only when that is so: a host
// that dies in between must not swallow it.
func TestToldBeforeShown(t *testing.T) {
	p := newPlace()
	p.phase, p.status = remoteapi.NeedsInput, remoteapi.Completed
	d, _ := p.driver(t)
	h := &ordered{Host: tasktest.NewHost(t, task.RemoteAgent, job(t, ofType(remoteapi.Ultraplan)))}
	if _, err := d.Run(t.Context(), h); err != nil || len(h.heard) != 2 || h.heard[0] != "told" {
		t.Errorf("%q, %v", h.heard, err)
	}
}
