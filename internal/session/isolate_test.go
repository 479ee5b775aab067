package session

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// gitIn runs the user's git, with nothing of his configuration.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(gitrun.Environ(os.Environ()), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@localhost",
		"GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@localhost")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// planted opens a session in a folder of a repository with one commit and one
// further file. The text may name the folder.
func planted(t *testing.T, script string, change ...func(*Config)) (*testSession, *worktree.Store) {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	root := filepath.Join(t.TempDir(), "worktrees")
	store := worktree.Open(root)
	r := open(t, script, append([]func(*Config){func(c *Config) {
		c.Agents.Worktrees = store
		dir := c.Info.Project
		gitIn(t, dir, "init", "-q", "-b", "main")
		for name, text := range map[string]string{"sub/a": "one\n", "key": "secret\n"} {
			write(t, filepath.Join(dir, name), text)
		}
		gitIn(t, dir, "add", ".")
		gitIn(t, dir, "commit", "-qm", "first")
		write(t, filepath.Join(dir, "sub/more"), "not committed\n")
	}}, change...)...)
	return r, store
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// isolated starts an agent with a checkout, and waits for its end.
func (r *testSession) isolated(change ...func(*control.StartRequest)) task.Record {
	r.t.Helper()
	return r.wait(string(r.begin(change...).ID))[0]
}

func (r *testSession) begin(change ...func(*control.StartRequest)) task.Record {
	r.t.Helper()
	started := r.ask("", append([]func(*control.StartRequest){func(q *control.StartRequest) {
		q.Shell, q.Agent = nil, &control.AgentRequest{Type: "general-purpose", Prompt: "work", Isolation: "worktree"}
	}}, change...)...)
	if started.Error != nil {
		r.t.Fatal(started.Error)
	}
	return *started.Task
}

func (r *testSession) answer(rec task.Record) string {
	r.t.Helper()
	a, err := control.WholeResult(r.ctx, r, string(rec.ID))
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Text
}

// What an isolated agent works on is its own; what becomes of it stands in its
// record and in its notification; and a further run goes on there.
func TestIsolated(t *testing.T) {
	r, _ := planted(t, `
  general-purpose:
    - tools: [{name: Bash, input: {command: "pwd; ls sub; echo two > sub/a"}}]
    - {when: {last_contains: again}, text: "{{last}}"}
    - {text: "{{last}}", repeat: 1}
    - tools: [{name: Bash, input: {command: "pwd; cat sub/a"}}]
    - text: "{{last}}"
`)
	rec := r.isolated()
	w := rec.Worktree
	if rec.Status != task.Completed || w == nil || w.Removed || w.Path == "" || w.Branch != "drover/"+string(rec.ID) || !strings.HasPrefix(w.Rescue, "refs/drover/rescue/") {
		t.Fatalf("ended %s %s with %+v", rec.Status, rec.Error, w)
	}
	said := r.answer(rec)
	if !strings.Contains(said, w.Path) || strings.Contains(said, "more") {
		t.Errorf("it worked in %q, not in %s", said, w.Path)
	}
	if text, _ := os.ReadFile(filepath.Join(r.folder, "sub/a")); string(text) != "one\n" {
		t.Errorf("the folder of the user holds %q", text)
	}
	if got := gitIn(t, r.folder, "show", w.Rescue+":sub/a"); got != "two" {
		t.Errorf("the copy holds %q", got)
	}
	if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(rec.ID), Prompt: "go on"}); err != nil {
		t.Fatal(err)
	}
	rec = r.wait(string(rec.ID))[0]
	if said := r.answer(rec); rec.Status != task.Completed || !strings.Contains(said, "two") || !strings.Contains(said, w.Path) {
		t.Errorf("the second run ended %s %s: %q", rec.Status, rec.Error, said)
	}
	if err := os.RemoveAll(w.Path); err != nil {
		t.Fatal(err)
	}
}

// The agent is told where it works and what is not there; nothing is left of a
// checkout in which nothing was done, and a further run gets a new one.
func TestIsolatedClean(t *testing.T) {
	r, _ := planted(t, `
  general-purpose:
    - {text: "{{last}}", repeat: -1}
`)
	for run := range 2 {
		var rec task.Record
		if run == 0 {
			rec = r.isolated()
		} else {
			old, _ := r.Get(r.ctx, string(r.only("general-purpose").ID))
			if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(old.ID), Prompt: "go on"}); err != nil {
				t.Fatal(err)
			}
			rec = r.wait(string(old.ID))[0]
		}
		if rec.Status != task.Completed || rec.Worktree == nil || !rec.Worktree.Removed || rec.Worktree.Path != "" {
			t.Fatalf("run %d ended %s %s with %+v", run, rec.Status, rec.Error, rec.Worktree)
		}
		if got := gitIn(t, r.folder, "for-each-ref", "refs/heads/drover", "refs/drover") + gitIn(t, r.folder, "worktree", "list", "--porcelain"); strings.Count(got, "worktree ") != 1 ||
			strings.Contains(got, "drover/") {
			t.Errorf("run %d left %q", run, got)
		}
	}
}

// The rules of the project hold in the copy, however they name it.
func TestIsolatedRules(t *testing.T) {
	for name, rule := range map[string]func(folder string) string{
		"absolute": func(folder string) string { return "Read(" + folder + "/key)" },
		"relative": func(string) string { return "Read(./key)" },
		"home":     func(string) string { return "Read(~/key)" },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := planted(t, `
  general-purpose:
    - tools: [{name: Read, input: {file_path: key}}, {name: Read, input: {file_path: sub/a}}]
    - text: "{{last}}"
`, func(c *Config) { c.Agents.Rules.Deny = []string{rule(c.Info.Project)} })
			rec := r.isolated()
			var all string
			for _, m := range []string{r.answer(rec), transcript(t, r, rec)} {
				all += m
			}
			if rec.Status != task.Completed || strings.Contains(all, "secret") || !strings.Contains(all, "one") {
				t.Errorf("ended %s %s: %s", rec.Status, rec.Error, all)
			}
		})
	}
}

func transcript(t *testing.T, r *testSession, rec task.Record) string {
	t.Helper()
	data, err := os.ReadFile(r.cfg.Place.AgentTranscript(rec.ID))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Where no checkout can be had nothing is started in its place.
func TestNotIsolated(t *testing.T) {
	turns := `
  general-purpose:
    - {text: done, repeat: -1}
`
	r := open(t, turns)
	ask := func(q *control.StartRequest) {
		q.Shell, q.Agent = nil, &control.AgentRequest{Type: "general-purpose", Prompt: "work", Isolation: "worktree"}
	}
	if got := r.ask("", ask); got.Error == nil || !strings.Contains(got.Error.Error(), "no place for worktrees") {
		t.Errorf("started %+v", got)
	}
	r = open(t, turns, func(c *Config) {
		c.Agents.Worktrees = worktree.Open(filepath.Join(t.TempDir(), "worktrees"))
		c.Agents.Catalog = fixed(subagent.Builtin().All()...)
	})
	if got := r.ask("", ask, func(q *control.StartRequest) { q.Agent.Isolation = "moon" }); got.Error == nil || got.Error.Code != control.Invalid {
		t.Errorf("started %+v", got)
	}
	rec := r.isolated()
	if rec.Status != task.Failed || rec.Cause.Reason != task.ReasonStart || !strings.Contains(rec.Error, "not in a git repository") {
		t.Errorf("ended %s: %s", rec.Status, rec.Error)
	}
}

// A checkout that is gone, or in use, ends a further run with a clear error, and
// never makes it work in the user's folder.
func TestIsolatedGone(t *testing.T) {
	r, store := planted(t, `
  general-purpose:
    - tools: [{name: Bash, input: {command: "echo two > sub/a"}}]
    - {text: done, repeat: -1}
`)
	rec := r.isolated()
	again := func() task.Record {
		t.Helper()
		if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(rec.ID), Prompt: "go on"}); err != nil {
			t.Fatal(err)
		}
		return r.wait(string(rec.ID))[0]
	}
	tree, err := store.Resume(t.Context(), rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := again(); got.Status != task.Failed || got.Cause.Reason != task.ReasonStart || !strings.Contains(got.Error, "in use") || got.Worktree == nil {
		t.Errorf("in use: %s %s %+v", got.Status, got.Error, got.Worktree)
	}
	tree.Release()
	r.reopen() // also from what the log says alone
	if err := os.RemoveAll(filepath.Dir(rec.Worktree.Path)); err != nil {
		t.Fatal(err)
	}
	if got := again(); got.Status != task.Failed || got.Cause.Reason != task.ReasonStart || !strings.Contains(got.Error, "gone") {
		t.Errorf("gone: %s %s", got.Status, got.Error)
	}
}

// A child of an isolated agent works in the checkout too, and is not given a
// further run elsewhere.
func TestInside(t *testing.T) {
	r, _ := planted(t, `
  general-purpose:
    - {when: {prompt_contains: inner}, text: inner}
    - tools: [{name: Agent, input: {description: In there, prompt: inner, subagent_type: explore}}]
    - text: outer
  explore:
    - tools: [{name: Glob, input: {pattern: "sub/*"}}]
    - {text: "{{last}}", repeat: -1}
`)
	rec := r.isolated()
	inner := r.only("explore")
	if rec.Status != task.Completed || !strings.Contains(inner.Cwd, "worktrees") {
		t.Fatalf("ended %s %s; the child was in %s", rec.Status, rec.Error, inner.Cwd)
	}
	if said := r.answer(inner); !strings.Contains(said, "sub/a") || strings.Contains(said, "more") {
		t.Errorf("the child saw %q", said)
	}
	_, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(inner.ID), Prompt: "go on"})
	if code(err) != control.Conflict || !strings.Contains(fmt.Sprint(err), string(rec.ID)) {
		t.Errorf("a further run of the child: %v", err)
	}
}

// Closing ends an isolated agent and still says what became of its work, and the
// next session takes away what is not needed any more.
func TestIsolatedClose(t *testing.T) {
	r, store := planted(t, `
  general-purpose:
    - tools: [{name: Bash, input: {command: "echo two > sub/a; echo ready; exec sleep 100"}}]
`)
	rec := r.begin()
	for e, err := range r.Events(r.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Verb == task.Begin && e.Task.Kind == task.LocalBash {
			r.ready(string(e.Task.ID))
			break
		}
	}
	r.reopen()
	rec, err := r.Get(r.ctx, string(rec.ID))
	if err != nil || rec.Status != task.Killed || rec.Worktree == nil || rec.Worktree.Rescue == "" {
		t.Fatalf("after the close: %s %+v, %v", rec.Status, rec.Worktree, err)
	}
	gitIn(t, rec.Worktree.Path, "checkout", "-q", "--", ".")
	r.reopen()
	select {
	case <-r.agents.Swept():
	case <-r.ctx.Done():
		t.Fatal("nobody looked at it")
	}
	if _, err := os.Lstat(rec.Worktree.Path); !os.IsNotExist(err) {
		t.Errorf("a checkout with nothing in it is still there: %v", err)
	}
	if _, err := store.Resume(t.Context(), rec.ID); err == nil {
		t.Error("and can be had")
	}
}

// Who edits a file that another agent has edited is told, and so is the other,
// once, each by the name that the file has for it.
func TestEditsTold(t *testing.T) {
	r, _ := planted(t, `
  main:
    - tools: [{name: Read, input: {file_path: sub/a}}]
    - tools: [{name: Edit, input: {file_path: sub/a, old_string: one, new_string: main}}]
    - tools: [{name: Agent, input: {description: Edit too, prompt: edit, subagent_type: general-purpose, isolation: worktree, name: ed}}]
    - text: done
  general-purpose:
    - tools: [{name: Read, input: {file_path: sub/a}}]
    - tools: [{name: Edit, input: {file_path: sub/a, old_string: one, new_string: ed}}]
    - tools: [{name: Edit, input: {file_path: sub/a, old_string: ed, new_string: ed2}}]
    - text: done
`)
	c := converse(r)
	c.say("go")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	rec := r.only("general-purpose")
	main, err := os.ReadFile(r.cfg.Place.Transcript())
	if err != nil {
		t.Fatal(err)
	}
	own := transcript(t, r, rec)
	for what, c := range map[string]struct{ text, want string }{
		"main":         {string(main), `Agent \"ed\" (` + string(rec.ID) + `) is editing the same file in another worktree: ` + filepath.Join(r.folder, "sub/a")},
		"the agent":    {own, `Agent \"main\" (` + string(r.cfg.Info.Session) + `) is editing the same file in another worktree: ` + filepath.Join(rec.Worktree.Path, "sub/a")},
		"of its place": {own, "You work in a git worktree of your own: " + rec.Worktree.Path + ", on the branch " + rec.Worktree.Branch},
		"of the rest":  {own, "2 uncommitted changes of " + r.folder + " are not in it."},
		"of the left":  {string(main), strings.Split(rec.Worktree.Text, `"`)[0]},
	} {
		if strings.Count(c.text, c.want) != 1 {
			t.Errorf("%s was not told %q once: %s", what, c.want, c.text)
		}
	}
}
