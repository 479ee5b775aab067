package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/test/modeltest"
)

// TestMemory shows from outside what is remembered from session to session.
func TestMemory(t *testing.T) {
	bin := build(t)
	for name, test := range (cases{
		"dream": memoryDream, "stop": memoryStop, "crash": memoryCrash, "board": memoryBoard, "off": memoryOff,
		"subconscious": memorySubconscious, "shutdown": memoryShutdown, "failed": memoryFailed, "auto": memoryAuto,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// longSince is a time of a last consolidation.
var longSince = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// memory is the folder, which is there from now on.
func (p *place) memory() string {
	p.t.Helper()
	dir := p.good("memory", "path").stdout()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	return dir
}

// consolidated sets the time of the last consolidation.
func (p *place) consolidated() string {
	p.t.Helper()
	path := filepath.Join(p.memory(), "consolidation")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chtimes(path, longSince, longSince); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func changed(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

func writes(name, text string) step {
	return calls("Write", map[string]any{"file_path": name, "content": text})
}

// What a dream has written is in the first request of the next session, in the same
// bytes over the whole of it.
func memoryDream(t *testing.T, p *place) {
	meanwhile := func(r *modeltest.Request) modeltest.Answer {
		if r := p.run("memory", "board", "add", "something new"); r.code != 0 {
			t.Error(r.stderr)
		}
		return calls("Bash", bash("true"))(r)
	}
	m := p.model(map[string][]step{
		"main":  {says("one"), meanwhile, says("two")},
		"dream": {writes("MEMORY.md", "- builds with make\n"), says("I wrote one line.")},
	})
	p.good("-p", "first")
	mark := p.consolidated()
	r := p.run("memory", "dream")
	if r.code != 0 || r.stdout() != "I wrote one line." || !strings.Contains(r.stderr, "memory was updated: MEMORY.md") {
		t.Fatalf("exit code %d: %q, %s", r.code, r.stdout(), r.stderr)
	}
	if !changed(t, mark).After(longSince) {
		t.Error("the time of the last consolidation is the old one")
	}
	tasks := p.tasks("-a")
	if len(tasks) != 1 || tasks[0]["task_type"] != "dream" || tasks[0]["notified"] != true || tasks[0]["status"] != "completed" {
		t.Errorf("tasks %v", tasks)
	}
	p.good("-p", "second", anything)
	all := of(m, "main")
	if strings.Contains(systemOf(t, all[0]), "builds with make") || !strings.Contains(systemOf(t, all[1]), "builds with make") {
		t.Errorf("the first session is told %s\nand the second %s", systemOf(t, all[0]), systemOf(t, all[1]))
	}
	if systemOf(t, all[1]) != systemOf(t, all[2]) {
		t.Error("what stands before the conversation has changed within a session")
	}
	if got := p.good("memory").stdout(); !strings.Contains(got, "builds with make") || !strings.Contains(got, "something new") {
		t.Errorf("shown: %s", got)
	}
	var shown struct {
		Last  time.Time `json:"last_consolidation"`
		Files []object  `json:"files"`
		Notes int       `json:"board_entries"`
	}
	if err := json.Unmarshal([]byte(p.good("memory", "show", "--json").stdout()), &shown); err != nil || shown.Last.Before(longSince) || len(shown.Files) != 1 || shown.Notes != 1 {
		t.Errorf("%v: %+v", err, shown)
	}
	if got := p.good("memory", "list").stdout(); !strings.Contains(got, "MEMORY.md") {
		t.Errorf("listed: %s", got)
	}
}

// dreaming starts a dream in the detached host that writes and then waits.
func (p *place) dreaming() (id, mark string) {
	p.t.Helper()
	never := make(chan struct{})
	p.t.Cleanup(func() { close(never) })
	p.model(map[string][]step{"main": {says("ok")}, "dream": {writes("half.md", "x"), held(never, says("never"))}})
	mark = p.consolidated()
	id = p.good("memory", "dream", "-d").stdout()
	if !within(patience, func() bool {
		all := p.tasks()
		if len(all) != 1 {
			return false
		}
		progress, _ := all[0]["progress"].(map[string]any)
		return progress["phase"] == "updating" && progress["tool_use_count"] == 1.0
	}) {
		p.t.Fatalf("it does not come to writing: %v", p.tasks("-a"))
	}
	return id, mark
}

func memoryStop(t *testing.T, p *place) {
	id, mark := p.dreaming()
	if id[0] != 'd' {
		t.Errorf("the ID is %s", id)
	}
	if text := p.good("ps").stdout(); !strings.Contains(text, id) || !strings.Contains(text, "dream") || !strings.Contains(text, "updating half.md") {
		t.Errorf("ps shows %s", text)
	}
	p.fails(1, []string{"memory", "dream", "-d"}, "being consolidated by process")
	p.good("stop", id)
	if got := changed(t, mark); !got.Equal(longSince) {
		t.Errorf("the time is %s", got)
	}
	p.good("stop", id) // does nothing
	if got := changed(t, mark); !got.Equal(longSince) {
		t.Errorf("after a second stop the time is %s", got)
	}
	if all := p.tasks("-a"); len(all) != 1 || all[0]["status"] != "killed" || all[0]["notified"] != true {
		t.Errorf("tasks %v", all)
	}
}

// What a host that was killed had claimed is put back by the next session.
func memoryCrash(t *testing.T, p *place) {
	_, mark := p.dreaming()
	killed := false
	for _, one := range marked(p.work) {
		if strings.HasSuffix(one.line, "drover host") {
			killed = syscall.Kill(one.pid, syscall.SIGKILL) == nil
		}
	}
	if !killed {
		t.Fatal("there is no host")
	}
	if !within(patience, func() bool { return len(marked(p.work)) == 0 }) {
		t.Fatalf("left: %v", marked(p.work))
	}
	if changed(t, mark).Equal(longSince) {
		t.Fatal("the host had not claimed the lock")
	}
	p.good("-p", "hello")
	if got := changed(t, mark); !got.Equal(longSince) {
		t.Errorf("the time is %s", got)
	}
}

func memoryBoard(t *testing.T, p *place) {
	if got := p.good("memory", "show").stdout(); !strings.Contains(got, "Nothing is remembered yet") {
		t.Errorf("shown: %s", got)
	}
	one := p.good("memory", "board", "add", "prefers", "tabs", "--tag=style").stdout()
	two := p.good("memory", "board", "add", "uses make").stdout()
	if got := p.good("memory", "board").stdout(); !strings.Contains(got, one) || !strings.Contains(got, "prefers tabs [style]") || strings.Index(got, two) > strings.Index(got, one) {
		t.Errorf("listed: %s", got)
	}
	var entries []object
	if err := json.Unmarshal([]byte(p.good("memory", "board", "list", "--json").stdout()), &entries); err != nil || len(entries) != 2 || entries[0]["id"] != one || entries[0]["by"] != "user" {
		t.Errorf("%v: %v", err, entries)
	}
	p.fails(3, []string{"memory", "board", "prune", "nobody"}, "no such entry", "see `drover memory board`")
	p.fails(1, []string{"memory", "board", "add", strings.Repeat("x", 3000)}, "say it shorter")
	if got := p.good("memory", "board", "prune", one).stdout(); !strings.Contains(got, "prefers tabs") {
		t.Errorf("pruned: %s", got)
	}
	if got := p.good("memory", "board").stdout(); strings.Contains(got, one) || !strings.Contains(got, two) {
		t.Errorf("listed: %s", got)
	}
}

func memoryOff(t *testing.T, p *place) {
	m := p.model(map[string][]step{"main": {says("ok")}})
	p.good("memory", "board", "add", "uses make")
	p.good("-p", "go", set(t, object{"memory": object{"enabled": "off"}}))
	if text := systemOf(t, m.Requests()[0]); strings.Contains(text, "uses make") {
		t.Errorf("told %s", text)
	}
}

// The command works with the permissions that hold by themselves.
func memorySubconscious(t *testing.T, p *place) {
	in := asks("rem-agent", "we use make", "mode", "background", "name", "rem-consolidate")
	in["description"] = "Consolidate session learnings"
	m := p.model(map[string][]step{
		"main":      {calls("Agent", in), says("under way"), says("told")},
		"rem-agent": {calls("context_board", map[string]any{"action": "add", "text": "we use make"}), says("added")},
	})
	p.good("-p", "/subconscious run")
	if got := p.good("memory", "board").stdout(); !strings.Contains(got, "we use make") || !strings.Contains(got, "rem-consolidate") {
		t.Errorf("board: %s", got)
	}
	holds(t, "the prompt", of(m, "main")[0].LastText(), "exactly once", "rem-agent", "background", "rem-consolidate", "Consolidate session learnings")
	if n := len(of(m, "main")); n != 3 {
		t.Errorf("%d requests of the main agent, which should be told of the end", n)
	}
}

// A conversation that ends leaves an agent behind, which outlives it; a short one
// does not.
func memoryShutdown(t *testing.T, p *place) {
	m := p.model(map[string][]step{
		"main":      {says("short"), says("long")},
		"rem-agent": {calls("context_board", map[string]any{"action": "add", "text": "learnt a thing"}), says("added")},
	})
	p.env = append(p.env, "DROVER_SUBCONSCIOUS=1")
	p.good("-p", "too short")
	log := filepath.Join(filepath.Dir(p.memory()), "rem.log")
	if _, err := os.Stat(log); err == nil {
		t.Error("a short conversation left somebody behind")
	}
	p.good("-p", "remember this", "--model=haiku", set(t, object{"memory": object{"shutdownTurns": 1}}))
	if !within(patience, func() bool { return strings.Contains(p.good("memory", "board").stdout(), "learnt a thing") }) {
		text, _ := os.ReadFile(log)
		t.Fatalf("nothing was learnt: %s", text)
	}
	holds(t, "the agent's prompt", of(m, "rem-agent")[0].LastText(), "User: remember this", "Agent: long")
	if !within(patience, func() bool {
		all := p.tasks("-a")
		return len(all) == 1 && all[0]["status"] == "completed" && all[0]["agent_type"] == "rem-agent" && all[0]["name"] == "rem-consolidate"
	}) {
		t.Errorf("tasks %v", p.tasks("-a"))
	}
	if got := modelOf(t, of(m, "rem-agent")[0]); got != "claude-haiku-5-5" {
		t.Errorf("the agent has the model %s", got)
	}
	if strings.Contains(strings.Join(linesOf(marked(p.work)), "\n"), "remember this") {
		t.Error("the conversation stands in a list of processes")
	}
}

// Why nothing was consolidated is said once, by the next conversation.
func memoryFailed(t *testing.T, p *place) {
	m := p.model(map[string][]step{"main": {says("one"), says("two"), says("three")}}) // the agent gets an error
	p.good("-p", "first", set(t, object{"memory": object{"shutdownRun": true, "shutdownTurns": 1}}))
	file := filepath.Join(filepath.Dir(p.memory()), "rem.failed")
	if !within(patience, func() bool { info, err := os.Stat(file); return err == nil && info.Size() > 0 }) {
		t.Fatal("the failure is not written down")
	}
	const said = "the lessons of an earlier conversation are not consolidated: "
	if r := p.run("-p", "second"); r.code != 0 || !strings.Contains(r.stderr, said) || !strings.Contains(r.stderr, "no step 1 for rem-agent") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
	if r := p.run("-p", "third"); r.code != 0 || strings.Contains(r.stderr, said) || m.Count() < 4 {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
}

func linesOf(all []proc) []string {
	var out []string
	for _, one := range all {
		out = append(out, one.line)
	}
	return out
}

// A host that has been idle dreams by itself, if that is set.
func memoryAuto(t *testing.T, p *place) {
	dir := filepath.Join(p.work, "config", "drover")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), []byte(`{"memory":{"dream":"auto","idleAfter":"1s","sessions":1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.model(map[string][]step{"main": {says("ok")}, "dream": {writes("MEMORY.md", "- by itself\n"), says("done")}})
	p.good("-p", "hello")
	p.good("run", "-d", "--", "true")
	if !within(patience, func() bool {
		for _, one := range p.tasks("-a") {
			if one["task_type"] == "dream" && one["status"] == "completed" {
				return true
			}
		}
		return false
	}) {
		t.Fatalf("it does not dream: %v", p.tasks("-a"))
	}
	holds(t, "memory", p.good("memory").stdout(), "by itself")
}

// A process that is left behind gets its orders on the command line, the rest where
// nobody looks, and no marks of this one.
func TestLeave(t *testing.T) {
	dir := t.TempDir()
	root := home.At(filepath.Join(dir, "state"))
	if err := root.Project(dir).Ensure(); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	fake := filepath.Join(dir, "fake")
	script := "#!/bin/sh\n{ printf '%s\\n' \"$@\"; env; pwd; cat; } > " + out + ".new\nmv " + out + ".new " + out + "\n"
	if err := os.WriteFile(fake, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	w := prompts{&folder{exe: fake, env: []string{"PATH=" + os.Getenv("PATH"), "DROVER_TASK_ID=b00000000", "DROVER_SESSION=s00000001", host.ProjectVariable + "=/x"}, cwd: dir, root: root, stderr: os.Stderr}}
	if err := w.leave(dreams.Handover{Session: "s00000000", Transcript: "/t.jsonl", Model: "openai/x", Prompt: "what was said"}, `{"model":"y"}`); err != nil {
		t.Fatal(err)
	}
	if !within(patience, func() bool { _, err := os.Stat(out); return err == nil }) {
		t.Fatal("the process has not run")
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	args := "agent\nrun\nrem-agent\n--name\nrem-consolidate\n--permission-mode\ndontAsk\n--model\nopenai/x\n--settings\n{\"model\":\"y\"}\n-\n"
	if !strings.HasPrefix(string(text), args) || !strings.HasSuffix(string(text), "\nwhat was said") {
		t.Errorf("it was given %s", text)
	}
	for _, piece := range []string{"\nDROVER_PARENT_SESSION=s00000000\n", "\nDROVER_PARENT_TRANSCRIPT=/t.jsonl\n", "\n" + dir + "\n"} {
		if !strings.Contains(string(text), piece) {
			t.Errorf("it has no %q", piece)
		}
	}
	for _, piece := range []string{"DROVER_TASK_ID", "DROVER_SESSION=", host.ProjectVariable} {
		if strings.Contains(string(text), piece) {
			t.Errorf("it has %s", piece)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(root.Project(dir).Dir(), ".parting-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
