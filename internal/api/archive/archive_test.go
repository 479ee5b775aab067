package archive

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// left is what a session leaves, made by hand.
type left struct {
	t     *testing.T
	place home.Session
	log   *journal.Journal
}

func leave(t *testing.T) *left {
	t.Helper()
	p := home.At(t.TempDir()).Project("/work/p")
	if err := p.Ensure(); err != nil {
		t.Fatal(err)
	}
	place := p.Session("s00000001")
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	log, err := journal.Open(place.DB(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &left{t, place, log}
}

// task adds a task by its moves.
func (l *left) task(r task.Record, answer string, moves ...lifecycle.Change) task.Record {
	l.t.Helper()
	r.Session, r.Run, r.Kind, r.Status = l.place.ID(), task.RunID("run_"+r.ID), task.LocalBash, task.Pending
	if r.ID[0] == 'a' {
		r.Kind = task.LocalAgent
	}
	if r.ID[0] == 'c' {
		r.Kind = task.MCPTask
	}
	r.CreateTime, r.OutputFile = time.Unix(100, 0).UTC(), l.place.Output(r.ID)
	if _, err := l.log.Append(l.t.Context(), lifecycle.Entry{Verb: task.Create, Task: r}); err != nil {
		l.t.Fatal(err)
	}
	for _, c := range moves {
		c.At = time.Unix(200, 0).UTC()
		next, err := lifecycle.Apply(r, c)
		if err != nil {
			l.t.Fatal(err)
		}
		r = next
		e := lifecycle.Entry{Verb: c.Verb, Task: r}
		if r.Status.Terminal() {
			e.Notification, e.Answer = &lifecycle.Notification{Run: r.Run, Task: r.ID}, answer
		}
		if _, err := l.log.Append(l.t.Context(), e); err != nil {
			l.t.Fatal(err)
		}
	}
	return r
}

func (l *left) open() *Archive {
	l.t.Helper()
	if err := l.log.Close(); err != nil {
		l.t.Fatal(err)
	}
	a, err := Open(l.t.Context(), l.place, control.Info{Session: l.place.ID(), Live: true, PID: 1})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = a.Close() })
	return a
}

// begun is the life of a command up to its process, and what came after.
func begun(id process.Identity, more ...lifecycle.Change) []lifecycle.Change {
	p := &task.Process{PID: id.PID, Start: id.Start, Boot: id.Boot}
	return append([]lifecycle.Change{{Verb: task.Begin, Process: p}}, more...)
}

// sleeper starts a process, and departed one that is gone.
func sleeper(t *testing.T) process.Identity {
	t.Helper()
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	id, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func dead(t *testing.T) process.Identity {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTruth(t *testing.T) {
	l := leave(t)
	gone := dead(t)
	l.task(task.Record{ID: "b0alive00", Keep: true}, "", begun(sleeper(t))...)
	l.task(task.Record{ID: "b0gone000"}, "", begun(gone)...)
	l.task(task.Record{ID: "b0noted00", Keep: true}, "", begun(gone)...)
	l.task(task.Record{ID: "b0signal0", Keep: true}, "", begun(gone)...)
	l.task(task.Record{ID: "b0stopped", Keep: true}, "", begun(gone, lifecycle.Change{Verb: task.RequestStop})...)
	l.task(task.Record{ID: "b0well000", Keep: true}, "", begun(gone)...)
	l.task(task.Record{ID: "b0unnoted", Keep: true}, "", begun(gone)...)
	l.task(task.Record{ID: "b0foreign", Keep: true}, "", begun(gone)...)
	l.task(task.Record{ID: "b0pending"}, "")
	l.task(task.Record{ID: "a0agent00"}, "", lifecycle.Change{Verb: task.Begin})
	before := gone
	before.Boot = "of another day"
	l.task(task.Record{ID: "b0reboot0", Keep: true}, "", begun(before)...)
	l.task(task.Record{ID: "b0ended00"}, "", begun(gone, lifecycle.Change{Verb: task.Complete})...)
	reused := sleeper(t)
	reused.Start++ // the number belongs to another process by now
	l.task(task.Record{ID: "b0reused0", Keep: true}, "", begun(reused)...)
	note := func(id task.ID, d process.Departure) {
		t.Helper()
		d.At = time.Unix(150, 0).UTC()
		if err := process.WriteDeparture(l.place.ExitFile(id), d); err != nil {
			t.Fatal(err)
		}
	}
	note("b0noted00", process.Departure{PID: gone.PID, Start: gone.Start, ExitCode: 7})
	note("b0signal0", process.Departure{PID: gone.PID, Start: gone.Start, ExitCode: -1, Signal: "SIGSEGV"})
	note("b0stopped", process.Departure{PID: gone.PID, Start: gone.Start, ExitCode: -1, Signal: "SIGTERM"})
	note("b0well000", process.Departure{PID: gone.PID, Start: gone.Start})
	note("b0foreign", process.Departure{PID: gone.PID, Start: gone.Start + 1, ExitCode: 7})
	a := l.open()

	for _, c := range []struct {
		id     string
		status task.Status
		reason task.Reason
		code   int // -2: none
	}{
		{"b0alive00", task.Running, "", -2},
		{"b0gone000", task.Killed, task.ReasonHostLost, -2},
		{"b0noted00", task.Failed, task.ReasonExit, 7},
		{"b0signal0", task.Failed, task.ReasonSignal, -1},
		{"b0stopped", task.Killed, task.ReasonStopped, -1},
		{"b0well000", task.Completed, task.ReasonDone, 0},
		{"b0unnoted", task.Killed, task.ReasonLost, -2},
		{"b0foreign", task.Killed, task.ReasonLost, -2},
		{"b0pending", task.Killed, task.ReasonHostLost, -2},
		{"a0agent00", task.Killed, task.ReasonHostLost, -2},
		{"b0reboot0", task.Killed, task.ReasonReboot, -2},
		{"b0ended00", task.Completed, task.ReasonDone, -2},
		{"b0reused0", task.Killed, task.ReasonLost, -2},
	} {
		t.Run(c.id, func(t *testing.T) {
			r, err := a.Get(t.Context(), c.id)
			if err != nil {
				t.Fatal(err)
			}
			var reason task.Reason
			if r.Cause != nil {
				reason = r.Cause.Reason
			}
			code := -2
			if r.ExitCode != nil {
				code = *r.ExitCode
			}
			if r.Status != c.status || reason != c.reason || code != c.code {
				t.Errorf("%s %q code %d, want %s %q code %d", r.Status, reason, code, c.status, c.reason, c.code)
			}
		})
	}
	if !a.Kept() {
		t.Error("the kept command that lives is not seen")
	}
	info, err := a.Info(t.Context())
	if err != nil || info.Live || info.PID != 0 || info.Tasks != (control.Counts{Live: 1, Total: 13}) || info.DiskBytes == 0 {
		t.Errorf("info %+v, %v", info, err)
	}
	live, err := a.List(t.Context(), control.ListRequest{})
	if err != nil || len(live.Tasks) != 1 || live.Tasks[0].ID != "b0alive00" {
		t.Errorf("live %+v, %v", live, err)
	}
	both := []string{"b0gone000", "b0alive00"}
	if _, err := a.Wait(t.Context(), control.WaitRequest{Refs: both}); code(err) != control.Unavailable {
		t.Errorf("wait for what lives: %v", err)
	}
	reply, err := a.Wait(t.Context(), control.WaitRequest{Refs: both, Any: true})
	if err != nil || reply.TimedOut || len(reply.Tasks) != 2 {
		t.Errorf("wait for any: %+v, %v", reply, err)
	}
	if _, err := a.Stop(t.Context(), control.StopRequest{Refs: []string{"b0alive00"}}); code(err) != control.Unavailable {
		t.Errorf("stop of what lives: %v", err)
	}
	receipt, err := a.Stop(t.Context(), control.StopRequest{Refs: []string{"b0noted00"}})
	if err != nil || len(receipt.Stopped) != 1 || receipt.Stopped[0].Status != task.Failed || receipt.Survivors == nil {
		t.Errorf("stop of what has ended: %+v, %v", receipt, err)
	}

	// Nothing of this was recorded: the next host does that.
	log, err := journal.Open(l.place.DB(), journal.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	states, err := log.Tasks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Task.ID != "b0ended00" && s.Task.Status.Terminal() {
			t.Errorf("%s was recorded as %s", s.Task.ID, s.Task.Status)
		}
	}
}

// The note of an end may come a moment after the end.
// A kept command that had begun and is pending in the log is shown as it is.
func TestBegun(t *testing.T) {
	l := leave(t)
	for _, id := range []task.ID{"b0alive00", "b0noted00", "b0absent0"} {
		l.task(task.Record{ID: id, Keep: true}, "")
	}
	cmd := exec.Command("sh", "-c", "setsid sh -c 'cat & wait' & cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), process.MarkTask+"=b0alive00")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	d := process.Departure{PID: 77, Start: 5, ExitCode: 7, At: time.Now()}
	if err := process.WriteDeparture(l.place.ExitFile("b0noted00"), d); err != nil {
		t.Fatal(err)
	}
	a := l.open()
	get := func(id string) task.Record {
		r, err := a.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := get("b0alive00"); r.Status != task.Running || r.Process == nil || r.Process.PID != cmd.Process.Pid {
		t.Errorf("alive: %s, %+v", r.Status, r.Process)
	}
	if r := get("b0noted00"); r.Status != task.Failed || r.ExitCode == nil || *r.ExitCode != 7 {
		t.Errorf("noted: %s, %+v", r.Status, r.Cause)
	}
	if r := get("b0absent0"); r.Status != task.Killed || r.Cause.Reason != task.ReasonHostLost {
		t.Errorf("absent: %s, %+v", r.Status, r.Cause)
	}
}

func TestLateNote(t *testing.T) {
	l := leave(t)
	gone := dead(t)
	l.task(task.Record{ID: "b0late000", Keep: true}, "", begun(gone)...)
	a := l.open()
	wrote := make(chan error, 1)
	time.AfterFunc(noteWait/10, func() {
		wrote <- process.WriteDeparture(l.place.ExitFile("b0late000"), process.Departure{PID: gone.PID, Start: gone.Start, ExitCode: 7, At: time.Now()})
	})
	r, err := a.Get(t.Context(), "b0late000")
	if err != nil || r.Status != task.Failed || r.ExitCode == nil || *r.ExitCode != 7 {
		t.Errorf("%s %+v, %v", r.Status, r.Cause, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func code(err error) control.Code {
	var e *control.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestList(t *testing.T) {
	l := leave(t)
	l.task(task.Record{ID: "a00000001"}, "")
	l.task(task.Record{ID: "a00000002", Parent: "a00000001"}, "")
	l.task(task.Record{ID: "b00000003", Parent: "a00000002"}, "")
	l.task(task.Record{ID: "b00000004"}, "")
	l.task(task.Record{ID: "b00000005"}, "")
	a := l.open()
	for _, limit := range []int{0, 1, 2, 5, 9} {
		req := control.ListRequest{All: true, Limit: limit}
		var got []string
		for range 10 {
			page, err := a.List(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if limit > 0 && len(page.Tasks) > limit {
				t.Errorf("%d tasks on a page of %d", len(page.Tasks), limit)
			}
			for _, r := range page.Tasks {
				got = append(got, string(r.ID[8:]))
			}
			if req.Before = page.Next; req.Before == 0 {
				break
			}
		}
		if s := strings.Join(got, ""); s != "54321" {
			t.Errorf("limit %d: %s, want 54321", limit, s)
		}
	}
	page, err := a.List(t.Context(), control.ListRequest{All: true, Under: "a00000001"})
	if err != nil || len(page.Tasks) != 3 {
		t.Errorf("subtree %+v, %v", page.Tasks, err)
	}
}

func TestGet(t *testing.T) {
	l := leave(t)
	l.task(task.Record{ID: "b0000000x", Name: "build"}, "")
	l.task(task.Record{ID: "b0000000y"}, "")
	a := l.open()
	for ref, want := range map[string]control.Code{"build": "", "b0000000y": "", "b000": control.Ambiguous, "b": control.NotFound, "": control.NotFound, "buil": control.NotFound} {
		if _, err := a.Get(t.Context(), ref); code(err) != want || want == "" && err != nil {
			t.Errorf("%q: %v, want %q", ref, err, want)
		}
	}
	var e *control.Error
	if _, err := a.Get(t.Context(), "b0"); !errors.As(err, &e) || !slices.Equal(e.Matches, []string{"b0000000y", "b0000000x"}) {
		t.Errorf("matches of %v", err)
	}
}

func TestOutput(t *testing.T) {
	l := leave(t)
	const text = "one\ntwo\nthree\n"
	r := l.task(task.Record{ID: "b00000001", OutputBytes: int64(len(text))}, "", begun(dead(t), lifecycle.Change{Verb: task.Complete})...)
	l.task(task.Record{ID: "b00000002"}, "")
	l.task(task.Record{ID: "a00000003"}, "the answer", lifecycle.Change{Verb: task.Begin}, lifecycle.Change{Verb: task.Complete})
	if err := os.WriteFile(r.OutputFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := l.open()
	for _, c := range []struct {
		name  string
		req   control.OutputRequest
		data  string
		at    int64
		ended bool
	}{
		{"whole", control.OutputRequest{}, text, 0, true},
		{"offset", control.OutputRequest{Offset: 4}, "two\nthree\n", 4, true},
		{"piece", control.OutputRequest{Max: 4}, "one\n", 0, false},
		{"tail", control.OutputRequest{Tail: 1}, "three\n", 8, true},
		{"end", control.OutputRequest{Offset: 14}, "", 14, true},
		{"waiting", control.OutputRequest{Offset: 14, Wait: time.Hour}, "", 14, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.Ref = "b00000001"
			got, err := a.Output(t.Context(), c.req)
			if err != nil || string(got.Data) != c.data || got.Offset != c.at || got.Next != c.at+int64(len(c.data)) || got.Ended != c.ended {
				t.Errorf("chunk %+v %q, %v", got, got.Data, err)
			}
		})
	}
	if _, err := a.Output(t.Context(), control.OutputRequest{Ref: "b00000001", Offset: -1}); code(err) != control.Invalid {
		t.Errorf("negative offset: %v", err)
	}
	if _, err := a.Output(t.Context(), control.OutputRequest{Ref: "b00000001", Offset: 15}); code(err) != control.Invalid {
		t.Errorf("offset beyond the end: %v", err)
	}
	if c, err := a.Output(t.Context(), control.OutputRequest{Ref: "b00000002"}); err != nil || !c.Ended || c.Data == nil {
		t.Errorf("of what never began: %+v, %v", c, err)
	}
	for ref, want := range map[string]string{"b00000001": text, "b00000002": "", "a00000003": "the answer"} {
		if got, err := control.WholeResult(t.Context(), a, ref); err != nil || got.Text != want || string(got.Task.ID) != ref {
			t.Errorf("result of %s: %q, %v", ref, got.Text, err)
		}
	}
}

// Whoever asked has died: nothing of it is shown as waiting, and nothing can be
// answered.
// A session that has ended is at rest, whatever it left.
func TestState(t *testing.T) {
	l := leave(t)
	l.task(task.Record{ID: "a11111111", Kind: task.LocalAgent}, "", lifecycle.Change{Verb: task.Begin})
	a := l.open()
	s, err := a.State(t.Context(), control.StateRequest{})
	if err != nil || !s.Idle || s.Completed != nil || s.Version == 0 || s.Seq != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if same, err := a.State(t.Context(), control.StateRequest{After: s.Version, Wait: time.Hour}); err != nil || same != s {
		t.Errorf("%+v, %v: it waits for what cannot come", same, err)
	}
}

func TestApprovals(t *testing.T) {
	l := leave(t)
	ask := lifecycle.Change{Verb: task.Ask, Question: &task.Question{ID: "q00000001", Digest: "d", Tool: "Bash"}}
	l.task(task.Record{ID: "a0asked00"}, "", lifecycle.Change{Verb: task.Begin}, ask)
	l.task(task.Record{ID: "b0alive00", Keep: true}, "", begun(sleeper(t), ask)...)
	a := l.open()
	for _, id := range []string{"a0asked00", "b0alive00"} {
		if r, err := a.Get(t.Context(), id); err != nil || r.AwaitingApproval || r.Questions != nil {
			t.Errorf("%s is shown as %+v, %v", id, r, err)
		}
	}
	open, err := a.Approvals(t.Context(), control.ApprovalsRequest{})
	if err != nil || open.Questions == nil || len(open.Questions) != 0 {
		t.Errorf("open: %+v, %v", open, err)
	}
	if err := a.Decide(t.Context(), control.DecideRequest{ID: "q00000001", Digest: "d"}); code(err) != control.Unavailable {
		t.Errorf("answer: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	l := leave(t)
	l.task(task.Record{ID: "b00000001"}, "")
	a := l.open()
	ctx := t.Context()
	_, start := a.Start(ctx, []control.StartRequest{{}})
	_, promote := a.Promote(ctx, "b00000001")
	_, send := a.Send(ctx, control.SendRequest{Ref: "b00000001", Text: "x"})
	_, interrupt := a.Interrupt(ctx, "b00000001")
	_, pause := a.Pause(ctx, []string{"b00000001"})
	_, resume := a.Resume(ctx, control.ResumeRequest{Ref: "b00000001"})
	for name, err := range map[string]error{"start": start, "promote": promote, "send": send, "interrupt": interrupt, "pause": pause, "resume": resume, "prompt": a.Prompt(ctx, control.PromptRequest{Text: "x"}), "hold": a.HoldLease(ctx, "x")} {
		var e *control.Error
		if !errors.As(err, &e) || e.Code != control.Unavailable || e.Fix == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	var seqs []task.Seq
	for e, err := range a.Events(context.WithoutCancel(ctx), 0) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.Seq)
	}
	if !slices.Equal(seqs, []task.Seq{1}) {
		t.Errorf("events %v", seqs)
	}
}
