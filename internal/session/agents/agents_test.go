package agents

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinkTranscript(t *testing.T) {
	dir := t.TempDir()
	to, at := filepath.Join(dir, "subagents", "t.jsonl"), filepath.Join(dir, "tasks", "a.jsonl")
	for _, d := range []string{filepath.Dir(to), filepath.Dir(at)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := LinkTranscript(to, at); err != nil { // the transcript may come later
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() string { data, _ := os.ReadFile(at); return string(data) }
	if read() != "one\n" {
		t.Errorf("through the link: %q", read())
	}
	// It is made anew under the eyes of readers, who never miss it.
	stop, missed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				missed <- nil
				return
			default:
				if _, err := os.Lstat(at); err != nil {
					missed <- err
					return
				}
			}
		}
	}()
	for range 200 {
		if err := LinkTranscript(to, at); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-missed; err != nil {
		t.Errorf("a reader missed the link: %v", err)
	}
	// What is in the way is replaced, and what it pointed to is left alone.
	secret := filepath.Join(dir, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Remove(at), os.Symlink(secret, at)); err != nil {
		t.Fatal(err)
	}
	if err := LinkTranscript(to, at); err != nil || read() != "one\n" {
		t.Errorf("over a planted link: %q, %v", read(), err)
	}
	if data, _ := os.ReadFile(secret); string(data) != "secret" {
		t.Errorf("the planted link's target holds %q", data)
	}
	if err := LinkTranscript(to, filepath.Join(dir, "nowhere", "a.jsonl")); err == nil {
		t.Error("a link in a folder that is not there")
	}
}

// Who waits for the responses of an agent reads each once, and counts on.
func TestAnswersAreReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	a := answers{from: agent.Reading{Path: path}, since: 0}
	next := func(want ...int) {
		t.Helper()
		list, err := a.next()
		var turns []int
		for _, one := range list {
			turns = append(turns, one.Turn)
		}
		if err != nil || !slices.Equal(turns, want) {
			t.Errorf("responses %v, %v, want %v", turns, err, want)
		}
	}
	next() // it has not begun
	tr, _, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	say := func(role agent.Role, aside bool) {
		if err := tr.Append(agent.Record{Message: agent.NewMessage(role, agent.TextBlock("m")), Aside: aside}); err != nil {
			t.Fatal(err)
		}
	}
	say(agent.User, false)
	say(agent.Assistant, false)
	next()
	say(agent.Assistant, true)
	say(agent.Assistant, false)
	next(1)
	next()
	say(agent.Assistant, false)
	say(agent.Assistant, false)
	next(2, 3)
}

// Hooks of to-dos are told who of which team has one.
func TestTodoOfTeammate(t *testing.T) {
	if got := (todoHooks{}).todo(todo.Item{Owner: "ada@crew"}); got.Teammate != "ada" || got.Team != "crew" {
		t.Errorf("hooks are told of %+v", got)
	}
}

// What a rule denies is not typed either, whatever keys stand between.
func TestUntyped(t *testing.T) {
	rt := (&Set{}).Runtime(Caller{Cwd: t.TempDir()})
	rt.Rules.Deny = []string{"Bash(rm:*)"}
	for _, text := range []string{"rm -rf /x", "ls\nrm -rf /x", "ls\rrm -rf /x", "ls\r\nrm -rf /x", "ls\x0frm -rf /x", "x\x15rm -rf /x", "x\x7frm -rf /x", "r\x06m -rf /x", "r\\\nm -rf /x"} {
		var no *toolkit.Refusal
		if err := rt.unbanned(text); !errors.As(err, &no) || !strings.Contains(no.Text, "Bash(rm:*)") {
			t.Errorf("%q is typed: %v", text, err)
		}
	}
	for _, text := range []string{"yes", "ls\tx", "ls\rcd ..", "\x03", "", "it's"} {
		if err := rt.unbanned(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
