//go:build linux

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// floodBytes is the size at which an output ends its task here.
const floodBytes = 256 << 10

// settings make the bounds of a session wider than a soak is long, and others so narrow
// that it comes to them.
func (s *soak) settings() map[string]any {
	return map[string]any{
		"limits": map[string]any{"perRoot": 100_000, "perSession": 100_000, "spawnRate": 10_000},
		"models": map[string]any{"windows": map[string]any{"*": 40_000, "claude-*": 40_000}},
		"tasks":  map[string]any{"outputLimitBytes": floodBytes},
		"agents": map[string]any{"summaries": "off"},
	}
}

const flow = `name: flow
params:
  n: {default: "0"}
steps:
  - {id: a, shell: "echo a $DROVER_PARAM_N"}
  - {id: b, needs: a, shell: echo b}
  - {id: c, needs: a, shell: "sleep 0.1; echo c"}
  - {id: d, needs: [b, c], shell: echo d}
`

const everything = "--permission-mode=bypassPermissions"

// begin begins both hosts.
func (s *soak) begin() {
	s.Helper()
	var err error
	if s.model, err = newModel(&s.tally); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(s.model.Close)
	s.Env = append(s.Env, "ANTHROPIC_BASE_URL="+s.model.URL, "ANTHROPIC_API_KEY=sk-test")
	raw, err := json.Marshal(s.settings())
	if err != nil {
		s.Fatal(err)
	}
	work, talk := filepath.Join(s.Work, "work"), filepath.Join(s.Work, "talk")
	for name, text := range map[string]string{filepath.Join(s.Work, "config", "drover", "settings.json"): string(raw),
		filepath.Join(work, "flow.yaml"): flow, filepath.Join(talk, "flow.yaml"): flow} {
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600))
		if err != nil {
			s.Fatal(err)
		}
	}
	s.good(work, "run", "-d", "--", "true")
	s.work = s.host("clients'", work, func(i control.Info) bool { return i.Project == work })
	id := s.good(talk, "-p", "-d", "go", everything)
	s.talk = s.host("conversation's", talk, func(i control.Info) bool { return string(i.Session) == id })
}

// each does something again and again, as often as said, until ctx ends. What is under
// way then comes to its end.
func each(ctx context.Context, wg *sync.WaitGroup, every time.Duration, do func(n int)) {
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
				do(n)
			case <-ctx.Done():
				return
			}
		}
	})
}

// load has both hosts work for so long.
func (s *soak) load(long time.Duration) {
	begun := time.Now()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	for _, h := range []*hosted{s.work, s.talk} {
		s.events[h] = s.follow(h)
	}
	var wg sync.WaitGroup
	h := s.work
	for range 3 {
		each(ctx, &wg, 150*time.Millisecond, func(n int) { s.command(h, n) })
	}
	each(ctx, &wg, 700*time.Millisecond, func(n int) { s.long(h, n) })
	each(ctx, &wg, 3*time.Second, func(int) { s.flood(h) })
	each(ctx, &wg, 1100*time.Millisecond, func(n int) { s.agent(h, n) })
	each(ctx, &wg, 1700*time.Millisecond, func(n int) { s.monitor(h, n) })
	each(ctx, &wg, 2300*time.Millisecond, func(n int) { s.workflow(h, n) })
	each(ctx, &wg, 900*time.Millisecond, func(n int) { s.stopOf(s.talk) })
	for _, h := range []*hosted{s.work, s.talk} {
		each(ctx, &wg, 800*time.Millisecond, func(n int) { s.reader(h, n) })
		each(ctx, &wg, 2500*time.Millisecond, func(n int) { s.faces(h, n) })
	}
	each(ctx, &wg, time.Second, func(int) { s.sample() })
	// A busy machine may not come to a summary by then, without which nothing was seen of one.
	waittest.Until(long+patience, func() bool { return time.Since(begun) >= long && s.tally.of("compactions") > 0 })
	cancel()
	wg.Wait()
	s.took = time.Since(begun)
}

// fill ends so many tasks that as many records are held as ever will be.
func (s *soak) fill() {
	for range heldRecords / 50 {
		reqs := make([]control.StartRequest, 50)
		for i := range reqs {
			reqs[i] = s.shell(s.work, "true")
		}
		recs, err := s.start(s.work, reqs...)
		if err != nil {
			s.Fatal(err)
		}
		refs := make([]string, len(recs))
		for i, r := range recs {
			refs[i] = string(r.ID)
		}
		if _, err := s.work.client.Wait(s.Context(), control.WaitRequest{Refs: refs, Timeout: patience}); err != nil {
			s.Fatal(err)
		}
	}
}

// sample counts what both hosts have.
func (s *soak) sample() {
	all := s.Procs("")
	for _, h := range []*hosted{s.work, s.talk} {
		one, ok := look(h.pid)
		if !ok {
			s.tally.bad("the %s host is gone", h.name)
			continue
		}
		keeper := h.keeperOf()
		for _, x := range all {
			if x.Parent == h.pid || x.Parent == keeper && x.PID != h.pid {
				one.processes++
			}
		}
		info, err := h.client.Info(s.Context())
		if err != nil {
			s.tally.bad("info of the %s host: %v", h.name, err)
			continue
		}
		h.mu.Lock()
		h.samples, h.ended = append(h.samples, one), append(h.ended, info.Tasks.Total-info.Tasks.Live)
		h.mu.Unlock()
	}
}

func (s *soak) shell(h *hosted, line string) control.StartRequest {
	return control.StartRequest{Shell: &control.ShellRequest{Line: line}, Cwd: h.dir, Env: s.Env}
}

// start starts tasks of a client.
func (s *soak) start(h *hosted, reqs ...control.StartRequest) ([]task.Record, error) {
	started, err := h.client.Start(s.Context(), reqs)
	if err != nil {
		return nil, fmt.Errorf("start on the %s host: %w", h.name, err)
	}
	out := make([]task.Record, len(started))
	for i, one := range started {
		if one.Error != nil {
			return nil, fmt.Errorf("start on the %s host: %w", h.name, one.Error)
		}
		out[i] = *one.Task
	}
	return out, nil
}

// one starts a task and returns it as it ended.
func (s *soak) one(h *hosted, req control.StartRequest) (task.Record, bool) {
	recs, err := s.start(h, req)
	if err != nil {
		s.tally.bad("%v", err)
		return task.Record{}, false
	}
	reply, err := h.client.Wait(s.Context(), control.WaitRequest{Refs: []string{string(recs[0].ID)}, Timeout: patience})
	if err != nil || reply.TimedOut || len(reply.Tasks) != 1 {
		s.tally.bad("wait for %s: %+v, %v", recs[0].ID, reply, err)
		return task.Record{}, false
	}
	return reply.Tasks[0], true
}

// command is a short one, whose end and output are known.
func (s *soak) command(h *hosted, n int) {
	code := n % 4
	r, ok := s.one(h, s.shell(h, fmt.Sprintf("echo line %d; exit %d", n, code)))
	if !ok {
		return
	}
	if r.ExitCode == nil || *r.ExitCode != code || (r.Status == task.Completed) != (code == 0) {
		s.tally.bad("a command that ends with %d: %s, %v", code, r.Status, r.Cause)
		return
	}
	out, err := h.client.Output(s.Context(), control.OutputRequest{Ref: string(r.ID)})
	if err != nil || string(out.Data) != fmt.Sprintf("line %d\n", n) || !out.Ended {
		s.tally.bad("its output: %q, ended %v, %v", out.Data, out.Ended, err)
	}
	s.tally.add("commands that ended as said")
}

// long is a command with one behind it that is stopped; some are held before.
func (s *soak) long(h *hosted, n int) {
	recs, err := s.start(h, s.shell(h, "sleep 1000 & trap '' HUP; exec sleep 1001"))
	if err != nil {
		s.tally.bad("%v", err)
		return
	}
	ref := string(recs[0].ID)
	if n%4 == 0 {
		if _, err := h.client.Pause(s.Context(), []string{ref}); err != nil {
			s.tally.bad("pause: %v", err)
		}
		s.tally.add("commands paused")
		if n%8 == 0 {
			if _, err := h.client.Resume(s.Context(), control.ResumeRequest{Ref: ref}); err != nil {
				s.tally.bad("thaw: %v", err)
			}
		}
	}
	receipt, err := h.client.Stop(s.Context(), control.StopRequest{Refs: []string{ref}})
	if err != nil || len(receipt.Survivors) > 0 || len(receipt.Stopped) != 1 || receipt.Stopped[0].Status != task.Killed {
		s.tally.bad("stop: %+v, %v", receipt, err)
	}
	s.tally.add("commands stopped")
}

// flood prints eight times what it may, and waits to be ended. It could print on: but until
// somebody looks, which is each second, a disk takes gigabytes.
func (s *soak) flood(h *hosted) {
	r, ok := s.one(h, s.shell(h, fmt.Sprintf("yes | head -c %d; exec sleep 1000", 8*floodBytes)))
	if !ok {
		return
	}
	if r.Status != task.Failed || r.Cause.Reason != task.ReasonOutputLimit {
		s.tally.bad("a flood ended as %s, %+v", r.Status, r.Cause)
	}
	s.tally.add("floods ended at the cap")
}

// agent is one that ends by itself, or one that is stopped while it thinks.
func (s *soak) agent(h *hosted, n int) {
	req := control.StartRequest{Cwd: h.dir, Env: s.Env, Agent: &control.AgentRequest{Type: "general-purpose", Prompt: fmt.Sprintf("part %d", n), PermissionMode: "bypassPermissions"}}
	if n%4 == 0 {
		req.Agent.Prompt = "wait for ever"
		recs, err := s.start(h, req)
		if err != nil {
			s.tally.bad("%v", err)
			return
		}
		receipt, err := h.client.Stop(s.Context(), control.StopRequest{Refs: []string{string(recs[0].ID)}})
		if err != nil || len(receipt.Survivors) > 0 {
			s.tally.bad("stop of an agent: %+v, %v", receipt, err)
		}
		s.tally.add("agents stopped")
		return
	}
	r, ok := s.one(h, req)
	if !ok {
		return
	}
	if r.Status != task.Completed {
		s.tally.bad("an agent ended as %s, %+v, %s", r.Status, r.Cause, r.Error)
	}
	s.tally.add("agents")
}

// monitor watches a command that ends.
func (s *soak) monitor(h *hosted, n int) {
	r, ok := s.one(h, control.StartRequest{Cwd: h.dir, Env: s.Env, Monitor: &control.MonitorRequest{Shell: &control.ShellRequest{Line: fmt.Sprintf("echo ERR %d; echo fine", n)}, Match: "^ERR"}})
	if !ok {
		return
	}
	if r.Status != task.Completed || r.Progress == nil || r.Progress.Monitor == nil || r.Progress.Monitor.Events != 1 {
		s.tally.bad("a monitor ended as %s, %+v, %+v", r.Status, r.Cause, r.Progress)
	}
	s.tally.add("monitors")
}

func (s *soak) workflow(h *hosted, n int) {
	r, ok := s.one(h, control.StartRequest{Cwd: h.dir, Env: s.Env, Workflow: &control.WorkflowRequest{File: filepath.Join(h.dir, "flow.yaml"), Params: map[string]string{"n": fmt.Sprint(n)}}})
	if !ok {
		return
	}
	if r.Status != task.Completed {
		s.tally.bad("a workflow ended as %s, %+v, %s", r.Status, r.Cause, r.Error)
	}
	s.tally.add("workflows")
}

// stopOf stops what runs too long in a conversation, as a program does: its model is told.
func (s *soak) stopOf(h *hosted) {
	page, err := h.client.List(s.Context(), control.ListRequest{})
	if err != nil {
		s.tally.bad("list: %v", err)
		return
	}
	for _, r := range page.Tasks {
		if !strings.HasPrefix(r.Description, "long ") {
			continue
		}
		receipt, err := h.client.Stop(s.Context(), control.StopRequest{Refs: []string{string(r.ID)}, Actor: task.ByClient})
		if err != nil || len(receipt.Survivors) > 0 {
			s.tally.bad("stop of %s: %+v, %v", r.ID, receipt, err)
		}
		s.tally.add("background commands stopped")
	}
}

// reader reads along for a moment and goes, in the midst of what it waits for.
func (s *soak) reader(h *hosted, n int) {
	ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
	defer cancel()
	page, err := h.client.List(s.Context(), control.ListRequest{All: true, Limit: 20})
	if err != nil || len(page.Tasks) == 0 {
		s.tally.bad("list: %d tasks, %v", len(page.Tasks), err)
		return
	}
	ref := string(page.Tasks[n%len(page.Tasks)].ID)
	switch n % 3 {
	case 0:
		if _, err := h.client.Output(s.Context(), control.OutputRequest{Ref: ref, Tail: 10}); err != nil {
			s.tally.bad("output of %s: %v", ref, err)
		}
		s.tally.add("outputs read")
	case 1:
		_, _ = h.client.Output(ctx, control.OutputRequest{Ref: ref, Offset: 1 << 40, Wait: time.Minute}) // it goes before there is anything
		s.tally.add("readers that went")
	case 2:
		for range h.client.Events(ctx, 0) { // as far as it comes
			continue
		}
		s.tally.add("readers that went")
	}
}

// faces are programs that are called, of which some are killed.
func (s *soak) faces(h *hosted, n int) {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	s.tally.add("faces")
	if n%3 != 0 {
		args := [][]string{{"ps"}, {"ps", "-a"}, {"sessions"}, {"ps", "--tree"}}[n%4]
		if _, err := s.run(ctx, h.dir, args...); err != nil {
			s.tally.bad("%v", err)
		}
		return
	}
	page, err := h.client.List(ctx, control.ListRequest{All: true, Limit: 1})
	if err != nil || len(page.Tasks) == 0 {
		s.tally.bad("list: %v", err)
		return
	}
	brief, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	_, _ = s.run(brief, h.dir, "logs", "-f", string(page.Tasks[0].ID)) // it ends with its task, or is killed
}

// drain lets all come to its end, and ends both hosts.
func (s *soak) drain() {
	s.model.over.Store(true)
	for _, h := range []*hosted{s.work, s.talk} {
		if !waittest.Until(patience, func() bool {
			page, err := h.client.List(s.Context(), control.ListRequest{})
			if err != nil {
				return h == s.talk && !harness.Alive(h.pid) // it ends by itself
			}
			for _, r := range page.Tasks {
				if strings.HasPrefix(r.Description, "long ") {
					s.stopOf(h)
				}
			}
			return len(page.Tasks) == 0
		}) {
			page, _ := h.client.List(s.Context(), control.ListRequest{})
			s.tally.bad("the %s host has work left: %v", h.name, brief(page.Tasks))
		}
	}
	if !waittest.Until(patience, func() bool { return !harness.Alive(s.talk.pid) }) {
		s.tally.bad("the host of a conversation that is over lives on")
	}
	s.goroutines()
	if !waittest.Until(patience, func() bool { return len(s.Procs("")) == 0 }) {
		for _, x := range s.Procs("") {
			s.tally.bad("left running: %s", x.Line)
		}
	}
	for _, h := range []*hosted{s.work, s.talk} {
		s.events[h].stop()
		_ = h.client.Close()
		s.told(h)
	}
}

func brief(all []task.Record) (out []string) {
	for _, r := range all {
		out = append(out, fmt.Sprintf("%s %s %q %s", r.ID, r.Kind, r.Description, r.Status))
	}
	return out
}

// goroutines ends the idle host by a signal on which it writes down what each goroutine
// does, and counts them.
func (s *soak) goroutines() {
	if err := syscall.Kill(s.work.pid, syscall.SIGQUIT); err != nil {
		s.tally.bad("the idle host: %v", err)
		return
	}
	if !waittest.Until(patience, func() bool { return !harness.Alive(s.work.pid) }) {
		s.tally.bad("the idle host does not end")
	}
	logs, _ := filepath.Glob(filepath.Join(filepath.Dir(s.work.place), "host.log"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			s.tally.bad("%v", err)
		}
		s.stacks = len(regexp.MustCompile(`(?m)^goroutine \d+`).FindAll(text, -1))
	}
}
