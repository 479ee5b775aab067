//go:build linux

package knownfailures

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
	"github.com/drover-dev/drover/test/waittest"
)

// place is a place of the tests of this package.
type place struct{ *harness.Place }

func newPlace(t *testing.T, bin string) *place {
	t.Helper()
	r := &place{harness.New(t, bin)}
	t.Cleanup(func() { r.End(harness.Patience) })
	return r
}

// kill ends the one process of a role by KILL.
func (r *place) kill(role string) {
	r.Helper()
	var all []harness.Proc
	if !waittest.Until(harness.Patience, func() bool { all = r.Of(role); return len(all) == 1 }) { // for a moment, what it starts looks like it
		r.Fatalf("of %s there are %v", role, all)
	}
	r.Must(syscall.Kill(all[0].PID, syscall.SIGKILL))
	waittest.Until(harness.Patience, func() bool { return len(r.Of(role)) == 0 })
}

// none waits until nothing with a text runs, and tells how long that took.
func (r *place) none(text string) time.Duration {
	r.Helper()
	begin := time.Now()
	if !waittest.Until(harness.Patience, func() bool { return len(r.Procs(text)) == 0 }) {
		r.Errorf("left: %v", r.Procs(text))
	}
	return time.Since(begin)
}

// some waits until so many run.
func (r *place) some(n int, text string) {
	r.Helper()
	if !waittest.Until(harness.Patience, func() bool { return len(r.Procs(text)) >= n }) {
		r.Fatalf("of %q there are %v", text, r.Procs(""))
	}
}

// ends calls what must end with a code.
func (r *place) ends(code int, args ...string) *harness.Call {
	r.Helper()
	f := r.Start(args...)
	if f.Code() != code {
		r.Fatalf("want exit code %d: %s", code, f)
	}
	return f
}

// tasks are those of all sessions.
func (r *place) tasks() (all []task.Record) {
	r.Helper()
	r.Read(&all, "ps", "-a", "--all-sessions", "--json")
	return all
}

// task finds one that fits.
func (r *place) task(what string, fits func(task.Record) bool) task.Record {
	r.Helper()
	all := r.tasks()
	if i := slices.IndexFunc(all, fits); i >= 0 {
		return all[i]
	}
	r.Fatalf("no task is %s: %+v", what, all)
	return task.Record{}
}

func (r *place) named(name string) task.Record {
	r.Helper()
	return r.task(name, func(x task.Record) bool { return x.Name == name })
}

// how is an end in a few words.
func how(x task.Record) string {
	out := string(x.Status)
	if x.Cause != nil {
		out += fmt.Sprintf(", %s by %s", x.Cause.Reason, x.Cause.Actor)
		if x.Cause.Signal != "" {
			out += ", " + x.Cause.Signal
		}
	}
	if x.ExitCode != nil && *x.ExitCode > 0 {
		out += fmt.Sprintf(", exit code %d", *x.ExitCode)
	}
	return out
}

// want compares.
func (r *place) want(what string, got, want any) {
	r.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("%s: %v, want %v", what, got, want)
	}
}

// says checks that a text holds others.
func (r *place) says(what, text string, pieces ...string) {
	r.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			r.Errorf("%s does not say %q: %.4000s", what, piece, text)
		}
	}
}

// file writes a program or another file of the project.
func (r *place) file(name, text string) string { r.Helper(); return r.File(name, text, 0o700) }

// settings are those of the user.
func (r *place) settings(all object) {
	r.Helper()
	raw, err := json.Marshal(all)
	r.Must(err)
	r.Settings(string(raw))
}

type object = map[string]any

// serve gives the place a model.
func (r *place) serve(answer modeltest.Handler) *modeltest.Server {
	r.Helper()
	s, err := modeltest.New(answer)
	r.Must(err)
	r.Cleanup(s.Close)
	r.Env = append(r.Env, "ANTHROPIC_BASE_URL="+s.URL, "ANTHROPIC_API_KEY=sk-test")
	return s
}

// step answers one request of an agent.
type step func(ctx context.Context, q *modeltest.Request) modeltest.Answer

// script has each agent walk through the list of its type, whose last step stays.
func (r *place) script(lists map[string][]step) *modeltest.Server {
	var mu sync.Mutex
	next := map[string]int{}
	return r.serve(func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		list := lists[q.Agent()]
		if len(list) == 0 {
			return modeltest.Error(400, "invalid_request_error", "no part for "+q.Agent())
		}
		mu.Lock()
		who := q.Agent() + q.AgentID()
		n := min(next[who], len(list)-1)
		next[who]++
		mu.Unlock()
		return list[n](ctx, q)
	})
}

func says(text string) step {
	return func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text(text) }
}

func calls(tool string, input object) step {
	return func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Call(tool, input) }
}

// many calls a tool n times in one reply.
func many(n int, tool string, input func(i int) object) step {
	return func(context.Context, *modeltest.Request) modeltest.Answer {
		var a modeltest.Answer
		for i := range n {
			a.Blocks = append(a.Blocks, modeltest.ToolUse("", tool, input(i)))
		}
		return a
	}
}

// held answers once something is closed.
func held(until <-chan struct{}, s step) step {
	return func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		a := s(ctx, q)
		a.Wait = until
		return a
	}
}

// never answers.
func never(ctx context.Context, _ *modeltest.Request) modeltest.Answer {
	<-ctx.Done()
	return modeltest.Text("never")
}

// refused is a provider that does not answer.
func refused(context.Context, *modeltest.Request) modeltest.Answer {
	return modeltest.Error(400, "invalid_request_error", "out of order")
}

func using(tokens int64, s step) step {
	return func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		a := s(ctx, q)
		a.Usage.InputTokens = tokens
		return a
	}
}

func bash(line string) object { return object{"command": line} }

func later(line string) object { return object{"command": line, "run_in_background": true} }

// agent is the input of a call that starts one; more are further fields by turns.
func agent(kind, prompt string, more ...any) object {
	in := object{"description": prompt, "prompt": prompt, "subagent_type": kind}
	for i := 0; i < len(more); i += 2 {
		in[more[i].(string)] = more[i+1]
	}
	return in
}

// heard is all that was said to an agent by its last request.
func (r *place) heard(m *modeltest.Server, label string) string {
	r.Helper()
	for _, q := range slices.Backward(m.Requests()) {
		if q.Agent() == label {
			return r.conversation(q)
		}
	}
	r.Fatalf("%s has asked for nothing", label)
	return ""
}

// conversation is the text of all messages of a request, results included.
func (r *place) conversation(q *modeltest.Request) string {
	r.Helper()
	p, err := q.Params()
	r.Must(err)
	var out strings.Builder
	for _, m := range p.Messages {
		blocks, err := m.Blocks()
		r.Must(err)
		for _, b := range blocks {
			var s string
			if b.Type == "tool_result" && json.Unmarshal(b.Content, &s) != nil {
				s = string(b.Content)
			}
			out.WriteString(b.Text + s + "\n")
		}
	}
	return out.String()
}

// requests counts those of an agent.
func requests(m *modeltest.Server, label string) (n int) {
	for _, q := range m.Requests() {
		if q.Agent() == label {
			n++
		}
	}
	return n
}

// notifications counts how often a text has the notification of a task.
func notifications(text string, id task.ID) int {
	return strings.Count(text, "<task-id>"+string(id)+"</task-id>")
}

// matched is the first group of a pattern in a text.
func matched(pattern, text string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "nothing matches " + pattern
}

// anything may be done by the agents of a prompt.
const anything = "--permission-mode=bypassPermissions"
