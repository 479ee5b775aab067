package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// TestScreen uses the terminal UI as people do, in panes of a true terminal multiplexer.
func TestScreen(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIPPED: tmux is not on the PATH, so nobody looks at the terminal UI in a true terminal")
	}
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place, *glass){
		"answer": screenAnswer, "background": screenBackground, "stop": screenStop, "approval": screenApproval,
		"killed": screenKilled, "hostile": screenHostile, "suspend": screenSuspend,
		"inbox": screenInbox, "pages": screenPages, "idle": screenIdle, "notify": screenNotify, "turn": screenTurn, "rewind": screenRewind,
		"edit": screenEdit, "plan": screenPlan, "typed": screenTyped,
		"image": screenImage, "hint": screenHint, "pages before": screenPagesBefore,
		"serve": screenServe, "prompt": screenPrompt, "choose": screenChoose, "set up": screenSetUp, "same": screenSame,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, bin)
			test(t, p, newGlass(t, p))
		})
	}
}

// glass is a multiplexer with the program in its panes.
type glass struct {
	t *testing.T
	p *place
}

func newGlass(t *testing.T, p *place) *glass {
	g := &glass{t: t, p: p}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", filepath.Join(p.sockets(), "t"), "kill-server").Run() // it may have gone with its last pane
	})
	return g
}

func (g *glass) tmux(args ...string) string {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), "tmux",
		append([]string{"-f", "/dev/null", "-S", filepath.Join(g.p.sockets(), "t")}, args...)...)
	cmd.Dir, cmd.Env = g.p.dir, append(g.p.env, "TERM=xterm-256color", "SHELL=/bin/sh", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// open runs a command in a window of a size, and split another one below it.
func (g *glass) open(width, height, command string) {
	g.t.Helper()
	g.tmux("-u", "new-session", "-d", "-x", width, "-y", height, command+stays, ";",
		"set-option", "-g", "default-terminal", "tmux-256color")
	if strings.HasPrefix(command, "drover") {
		g.shows("0", "────")
	}
}

// stays keeps a pane when its command has ended.
const stays = "; echo left with $?; exec sleep 600"

func (g *glass) split(command string) {
	g.t.Helper()
	g.tmux("split-window", "-h", "-t", "0", command+stays)
	g.shows("1", "────")
}

// keys presses keys in a pane.
func (g *glass) keys(pane string, keys ...string) {
	g.t.Helper()
	g.tmux(append([]string{"send-keys", "-t", "0." + pane}, keys...)...)
}

// types types a text, and enter.
func (g *glass) types(pane, text string) {
	g.t.Helper()
	g.keys(pane, "-l", text)
	g.keys(pane, "Enter")
}

func (g *glass) screen(pane string) string { return g.tmux("capture-pane", "-p", "-t", "0."+pane) }

// shows waits until a pane shows texts, and none of those behind a minus.
func (g *glass) shows(pane string, texts ...string) {
	g.t.Helper()
	last := ""
	if !within(patience, func() bool {
		last = g.screen(pane)
		for _, text := range texts {
			if gone, not := strings.CutPrefix(text, "-"); strings.Contains(last, gone) == not {
				return false
			}
		}
		return true
	}) {
		g.t.Fatalf("pane %s does not show %q:\n%s", pane, texts, last)
	}
}

// leaves leaves the program in a pane, in which nothing runs.
func (g *glass) leaves(pane string, shown ...string) {
	g.t.Helper()
	g.shows(pane, "-esc interrupts")
	g.keys(pane, "C-d")
	g.shows(pane, shown...)
}

// A link that leads through a tunnel is a code too, which a phone reads; one to this machine is not.
func screenServe(_ *testing.T, _ *place, g *glass) {
	g.open("120", "40", "exec drover serve --listen 127.0.0.1:0 --url https://page.example")
	g.shows("0", "https://page.example/#pair=", "▀▄", "token: ")
	g.tmux("split-window", "-h", "-t", "0", "exec drover serve --listen 127.0.0.1:0")
	g.shows("1", "/#pair=", "token: ", "-▀▄")
}

func screenAnswer(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {says("# Good day\n\nI have *read* it."), says("You said two lines.")}})
	g.open("80", "24", "drover")
	g.shows("0", "Drover runs commands and agents")
	g.types("0", "hello")
	g.shows("0", "> hello", "● Good day", "I have read it.", "-esc interrupts")
	g.tmux("resize-window", "-t", "0", "-x", "60", "-y", "20")
	g.shows("0", "● Good day")
	g.tmux("set-buffer", "one\ntwo\n", ";", "paste-buffer", "-p", "-t", "0.0")
	g.shows("0", "> one\n  two")
	g.keys("0", "Enter")
	g.shows("0", "You said two lines.")
	id := p.session("prompt")
	g.leaves("0", "drover: left "+id, "left with 0")
	p.leaves(patience, "drover host")
}

// A prompt on the command line is the first turn of a new conversation, and the next of one that is resumed.
func screenPrompt(_ *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {says("It is fixed."), says("It is tested."), says("pong")}})
	g.open("80", "24", "drover 'fix it'")
	g.shows("0", "> fix it", "● It is fixed.", "-esc interrupts")
	id := p.session("prompt")
	g.leaves("0", "drover: left "+id, "left with 0")
	p.leaves(patience, "drover host")
	g.tmux("respawn-pane", "-k", "-t", "0.0", "drover --continue 'now test it'"+stays)
	g.shows("0", "> fix it", "> now test it", "● It is tested.", "-esc interrupts")
	g.leaves("0", "left with 0")
	g.tmux("respawn-pane", "-k", "-t", "0.0", "TERM=dumb drover -- ping"+stays)
	g.shows("0", "pong")
}

// What is seen after attaching again is what was seen before, to the host that was there and to the next one:
// answers of two turns apart, what happened to tasks between them, and how long all took.
func screenSame(t *testing.T, p *place, g *glass) {
	p.answers(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		switch last := r.LastText(); {
		case strings.Contains(last, "<task-notification>"):
			return modeltest.Text("It has ended.")
		case strings.Contains(last, "start it"):
			return modeltest.Call("Bash", later("cat f"))
		case strings.Contains(last, "look"):
			return modeltest.Call("Bash", bash("sleep 2.2; echo seen"))
		}
		return modeltest.Text("It runs.")
	})
	fifo := p.fifo("f")
	g.open("100", "40", "drover attach --new --permission-mode bypassPermissions")
	g.types("0", "start it")
	g.shows("0", "It runs.", "1 task still runs", "-esc interrupts")
	p.free(fifo)
	g.shows("0", "It has ended.", "completed after", "-1 shell", "-esc interrupts")
	g.types("0", "look")
	g.shows("0", "> look", "seen", "● It runs.", "-esc interrupts")
	talk := func() string {
		text, _, _ := strings.Cut(g.screen("0"), "────")
		return strings.TrimSpace(text)
	}
	var before string
	g.shows("0", "2.")
	if !within(patience, func() bool {
		before = talk()
		return strings.Count(before, "It runs.") == 2 && strings.HasSuffix(before, "s")
	}) {
		t.Fatalf("no line of the last turn:\n%s", before)
	}
	id := p.session("prompt")
	tenth := regexp.MustCompile(`\d+\.\ds`) // a transcript has the time of the answer, which is a little before the end
	again := func(who string, gone bool, seen func(string) string) {
		t.Helper()
		g.leaves("0", "drover: left "+id)
		if gone {
			p.leaves(patience, "drover host")
		}
		g.tmux("respawn-pane", "-k", "-t", "0.0", "drover attach "+id+stays)
		g.shows("0", "────", "It has ended.")
		after := ""
		if !within(patience, func() bool { after = talk(); return seen(after) == seen(before) }) {
			t.Errorf("%s shows\n%s\nbefore it was\n%s", who, after, before)
		}
	}
	g.tmux("new-window", "-d", "drover attach "+id+stays) // the host stays
	again("the same host", false, func(text string) string { return text })
	g.tmux("kill-window", "-t", "1")
	again("the next host", true, func(text string) string { return tenth.ReplaceAllString(text, "s") })
}

// Without a key the terminal UI sets up a model, and the conversation opens on it. What was saved counts
// from then on, for all commands and for nobody else to read; a variable goes before it.
func screenSetUp(t *testing.T, p *place, g *glass) {
	m, err := modeltest.New(walk(map[string][]step{"main": {says("It is fixed."), says("pong")}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	models, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	calls := httputil.NewSingleHostReverseProxy(models)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer sk-good":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/models":
			fmt.Fprint(w, `{"object":"list","data":[{"id":"claude-one"},{"id":"claude-two"}]}`)
		default:
			calls.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(gateway.Close)
	if r := p.run(); r.code != 0 || !strings.Contains(r.stdout(), "No model for prompts: no key is set") {
		t.Errorf("without a terminal: %d, %s", r.code, r.stdout())
	}
	g.open("80", "24", "env drover 'fix it'")
	g.shows("0", "Drover needs a model.", "❯ Anthropic API key", "-looking for local servers")
	g.keys("0", "Down", "Down", "Enter")
	g.shows("0", "❯ Address")
	g.types("0", gateway.URL)
	g.shows("0", "❯ Token")
	g.types("0", "sk-wrong")
	g.shows("0", "✗ "+strings.TrimPrefix(gateway.URL, "http://")+" refused the key (401 Unauthorized)", "-sk-wrong")
	g.keys("0", "C-u")
	g.types("0", "sk-good")
	g.shows("0", "Choose a model", "claude-one")
	g.types("0", "two")
	g.shows("0", "> fix it", "● It is fixed.", "Two")
	g.leaves("0", "left with 0")
	file := filepath.Join(p.work, "state", "credentials.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the key: %v, %v", info, err)
	}
	if got := p.good("-p", "ping").stdout(); got != "pong" {
		t.Errorf("-p answers %q", got)
	}
	p.env = append(p.env, "ANTHROPIC_API_KEY=sk-other", "ANTHROPIC_BASE_URL="+gateway.URL)
	if r := p.run("-p", "ping"); r.code == 0 || !strings.Contains(r.stderr, "refused the key") {
		t.Errorf("what is saved went before the variables: %d, %s, %s", r.code, r.stdout(), r.stderr)
	}
}

// Where several conversations are live, the user chooses; without a terminal they are listed.
func screenChoose(t *testing.T, p *place, g *glass) {
	p.answers(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		if strings.Contains(r.LastText(), "started") {
			return modeltest.Text("It runs.")
		}
		return modeltest.Call("Bash", later("echo started; cat f"))
	})
	defer p.free(p.fifo("f"))
	first := p.good("-p", "-d", "--permission-mode", "bypassPermissions", "write the parser").stdout()
	second := p.good("-p", "-d", "--permission-mode", "bypassPermissions", "start the server").stdout()
	p.soon(func() bool { return len(p.list("--all-sessions")) == 4 })
	g.open("80", "24", "env drover attach")
	g.shows("0", "Resume:", "write the parser", "start the server", "1 shell", "ago  "+filepath.Base(p.dir)+"  "+second)
	plain := p.run("attach")
	for _, want := range []string{first, second, "write the parser", "1 shell", "AGE", filepath.Base(p.dir)} {
		if !strings.Contains(plain.stdout(), want) {
			t.Errorf("the list does not show %q:\n%s", want, plain.stdout())
		}
	}
	if plain.code != 2 || !strings.Contains(plain.stderr, "2 sessions are live (choose one: `drover attach SESSION`)") {
		t.Errorf("without a terminal: %d, %s", plain.code, plain.stderr)
	}
	g.keys("0", "Down", "Enter")
	g.shows("0", "> write the parser", "● It runs.", "-start the server")
}

func screenBackground(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {calls("Bash", bash("echo begun; cat f")), says("I go on."), says("It came back.")}})
	fifo := p.fifo("f")
	g.open("100", "30", "drover attach --new --permission-mode bypassPermissions")
	g.types("0", "go")
	g.shows("0", "Bash runs", "ctrl+b: to the background", "│ begun")
	g.keys("0", "C-b")
	g.shows("0", "I go on.", "1 shell · Shift+Down")
	p.alive("cat f")
	p.free(fifo)
	g.shows("0", "It came back.", "-1 shell · Shift+Down")
	g.leaves("0", "left with 0")
}

// The first ctrl+b moves the command, the second one the turn. The conversation answers the next
// prompt meanwhile, and is told of the end of the turn, which is a task that everybody sees.
func screenTurn(t *testing.T, p *place, g *glass) {
	hold := make(chan struct{})
	p.answers(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		switch last := r.LastText(); {
		case strings.Contains(last, "<task-notification>"):
			return modeltest.Text("It was told: " + last)
		case strings.Contains(last, "two and two"):
			return modeltest.Text("four")
		case strings.Contains(last, "start the build"):
			return modeltest.Call("Bash", bash("echo begun; cat f"))
		}
		a := modeltest.Text("the build is done")
		a.Wait = hold
		return a
	})
	fifo := p.fifo("f")
	g.open("120", "40", "drover attach --new --permission-mode bypassPermissions")
	g.types("0", "start the build")
	g.shows("0", "Bash runs", "│ begun")
	g.keys("0", "C-b")
	g.shows("0", "1 shell · Shift+Down", "-Bash runs", "esc interrupts")
	g.keys("0", "C-b")
	g.shows("0", "the turn runs in the background now", "2 background tasks · Shift+Down", "-esc interrupts")
	g.types("0", "two and two?")
	g.shows("0", "● four", "-esc interrupts")
	found := ""
	for _, r := range p.list("--all-sessions") {
		if r.AgentType == task.MainSession && !r.IsConversation() {
			found = string(r.ID)
		}
	}
	if found == "" {
		t.Error("ps shows no task of the turn")
	}
	close(hold)
	g.shows("0", "It was told: ", "start the build completed after", found, "-2 background tasks")
	p.free(fifo)
	g.shows("0", "-1 shell", "completed (exit code 0)") // the agent is told of that too
	g.leaves("0", "left with 0")
}

// Esc twice goes back to before an earlier prompt, in a copy of the conversation.
func screenRewind(t *testing.T, p *place, g *glass) {
	m := p.model(map[string][]step{"main": {says("first answer"), says("second answer"), says("third answer")}})
	g.open("100", "30", "drover attach --new")
	g.types("0", "alpha")
	g.shows("0", "first answer", "-esc interrupts")
	g.types("0", "beta")
	g.shows("0", "second answer", "-esc interrupts")
	old := p.session("prompt")
	before := p.transcript(old)
	g.keys("0", "Escape")
	g.shows("0", "esc again")
	g.keys("0", "Escape")
	g.shows("0", "Go back to before a prompt", "alpha", "❯ beta")
	g.keys("0", "Enter")
	g.shows("0", "> alpha", "first answer", "-second answer", "> beta", "-Go back")
	g.keys("0", "-l", " again")
	g.shows("0", "> beta again")
	g.keys("0", "Enter")
	g.shows("0", "third answer")
	if last := spoken(t, m.Requests()[2]); last != "alpha first answer beta again" {
		t.Errorf("the model read %q", last)
	}
	if string(p.transcript(old)) != string(before) {
		t.Error("the old conversation was changed")
	}
	g.leaves("0", "left with 0")
}

// screenImage sends images whose paths are pasted and typed, and one of the clipboard, and goes
// back to them.
func screenImage(t *testing.T, p *place, g *glass) {
	m := p.model(map[string][]step{"main": {says("two dots"), says("two dots again")}})
	data, err := base64.StdEncoding.DecodeString(dot)
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	for name, content := range map[string]string{
		filepath.Join(p.dir, "my dot.png"): string(data), filepath.Join(p.dir, "text.png"): "no image",
		filepath.Join(tools, "wl-paste"): "#!/bin/sh\ncase $1 in --list-types) echo text/plain; echo image/png;; " +
			"*) exec cat '" + filepath.Join(p.dir, "my dot.png") + "';; esac\n",
	} {
		if err := os.WriteFile(name, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g.open("100", "30", "drover attach --new")
	g.keys("0", "C-v")
	g.shows("0", "no tool for it is here")
	g.keys("0", "C-d")
	g.shows("0", "left with 0")
	g.tmux("respawn-pane", "-k", "-t", "0.0", "PATH="+tools+":$PATH WAYLAND_DISPLAY=none drover attach --new"+stays)
	g.shows("0", "────")
	g.tmux("set-buffer", "'"+filepath.Join(p.dir, "my dot.png")+"' ", ";", "paste-buffer", "-p", "-t", "0.0")
	g.shows("0", "> [Image 1: my dot.png 70 B]")
	g.keys("0", "-l", " and ./text.png ")
	g.shows("0", "neither PNG, JPEG, GIF nor WebP", "and ./text.png")
	g.keys("0", "C-w")
	g.keys("0", "C-v")
	g.shows("0", "[Image 2: clipboard.png 70 B]")
	g.keys("0", "Enter")
	g.shows("0", "> [image 1: my dot.png] and", "[image 2: clipboard.png]", "two dots", "-esc interrupts")
	g.keys("0", "Escape")
	g.shows("0", "esc again")
	g.keys("0", "Escape")
	g.shows("0", "Go back to before a prompt")
	g.keys("0", "Enter")
	g.shows("0", "> [Image 1: my dot.png 70 B] and", "[Image 2: clipboard.png 70 B]", "-two dots")
	g.keys("0", "Enter")
	g.shows("0", "two dots again", "-esc interrupts")
	for i, r := range m.Requests()[:2] {
		if n := strings.Count(string(r.Body), `"data":"`+dot+`"`); n != 2 {
			t.Errorf("request %d: the model sees %d images: %s", i, n, r.Body)
		}
	}
	g.leaves("0", "left with 0")
}

func screenStop(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {calls("Bash", later("echo first line; sleep 613")), says("It runs."), says("It is gone.")}})
	g.open("100", "30", "drover attach --new --permission-mode bypassPermissions")
	g.types("0", "go")
	g.shows("0", "It runs.", "1 task still runs", "1 shell · Shift+Down")
	g.keys("0", "S-Down")
	g.shows("0", "Tasks · 1 running", "● running", "first line")
	g.keys("0", "x")
	g.shows("0", "press x again")
	g.keys("0", "x", "x") // the first may come too late, and is then the first of two
	g.shows("0", "■ stopped", "SIGTERM", "nothing of it is left")
	g.keys("0", "Escape")
	g.shows("0", "> go", "-1 shell")
	g.leaves("0", "left with 0")
}

func screenApproval(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {says("first words"), calls("Bash", bash("touch it")), echo}})
	g.open("160", "30", "drover attach --new --permission-mode default")
	g.types("0", "hello")
	g.shows("0", "first words")
	g.split("drover attach " + p.session("prompt"))
	g.shows("1", "> hello", "first words")
	g.types("0", "touch it")
	g.shows("0", "Allow command touch it?", "command: touch it")
	g.shows("1", "Allow command touch it?", "command: touch it", "enter answers")
	g.keys("1", "Down")
	g.shows("1", "❯ 2. Allow always", "adds the rule Bash(touch it)")
	g.keys("1", "Up")
	g.shows("1", "❯ 1. Allow once")
	g.keys("1", "Enter")
	g.shows("0", "-Allow command", "answered elsewhere", "(no output)")
	g.shows("1", "-Allow command", "(no output)")
	if !p.there("it") {
		t.Error("what was allowed did not run")
	}
	g.leaves("0", "left with 0")
	g.leaves("1", "left with 0")
}

// Enter that is pressed as a question appears does not answer it: it was meant for the prompt.
func screenTyped(t *testing.T, p *place, g *glass) {
	const tries, quick = 8, 300 * time.Millisecond
	var steps []step
	for i := range tries {
		steps = append(steps, calls("Bash", bash("touch it"+strconv.Itoa(i))), echo)
	}
	p.model(map[string][]step{"main": steps})
	g.open("100", "30", "drover attach --new --permission-mode default")
	for i := range tries {
		file := "it" + strconv.Itoa(i)
		g.types("0", "do it")
		unseen := time.Now() // since then it was drawn
		if !within(patience, func() bool {
			looked := time.Now()
			if strings.Contains(g.screen("0"), "Allow command touch "+file+"?") {
				return true
			}
			unseen = looked
			return false
		}) {
			t.Fatal("no question is shown")
		}
		g.keys("0", "Enter")
		slow := time.Since(unseen) > quick // a busy machine: somebody may have read it
		answered := within(time.Second, func() bool { return p.there(file) })
		if answered && !slow {
			t.Fatal("an enter that came with the question has answered it")
		}
		if !answered {
			g.shows("0", "enter answers")
			g.keys("0", "Enter")
		}
		g.shows("0", "-Allow command")
		if slow {
			continue
		}
		if !within(patience, func() bool { return p.there(file) }) {
			t.Error("what was allowed did not run")
		}
		g.leaves("0", "left with 0")
		return
	}
	t.Skip("SKIPPED: the machine is too busy to press a key within 300 ms")
}

func screenEdit(t *testing.T, p *place, g *glass) {
	m := p.model(map[string][]step{"main": {calls("Bash", bash("touch it")), says("It ran.")}})
	g.open("100", "30", "drover attach --new --permission-mode default")
	g.types("0", "go")
	g.shows("0", "Allow command touch it?", "command: touch it", "tab edits")
	g.keys("0", "Tab")
	g.shows("0", "edit command:")
	g.keys("0", "BSpace", "BSpace", "a", "l", "l")
	g.keys("0", "Enter")
	g.shows("0", "changed by you", "command: touch all", "-Allow always")
	g.keys("0", "Enter")
	g.shows("0", "It ran.", "-Allow command")
	if p.there("it") || !p.there("all") {
		t.Error("what ran is not what was allowed")
	}
	if read := string(m.Requests()[1].Body); !strings.Contains(read, "has changed your call of Bash") {
		t.Errorf("the model has read %s", read)
	}
	g.leaves("0", "left with 0")
}

func screenPlan(t *testing.T, p *place, g *glass) {
	m := p.model(map[string][]step{"main": {
		calls("ExitPlanMode", map[string]any{"plan": "# The first plan"}),
		calls("ExitPlanMode", map[string]any{"plan": "# The second plan\n\n- write **it**"}),
		calls("Write", map[string]any{"file_path": filepath.Join(p.dir, "it"), "content": "x"}), says("It is written."),
	}})
	g.open("100", "30", "drover attach --new --permission-mode plan")
	g.types("0", "go")
	g.shows("0", "Approve this plan?", "The first plan", "1. Approve", "enter answers")
	g.keys("0", "3")
	g.types("0", "mind the tests")
	g.shows("0", "The second plan", "write it", "2. Approve, and accept edits", "enter answers")
	if p.there("it") {
		t.Error("the file was written before the plan was approved")
	}
	g.keys("0", "2")
	g.shows("0", "It is written.", "acceptEdits")
	if read := string(m.Requests()[1].Body); !strings.Contains(read, "mind the tests") {
		t.Errorf("the model has read %s", read)
	}
	if !p.there("it") {
		t.Error("the approved plan was not carried out")
	}
	g.leaves("0", "left with 0")
}

func screenKilled(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {calls("Bash", bash("cat f; touch it")), says("I went on without you."), says("And then.")}})
	fifo := p.fifo("f")
	g.open("100", "30", "drover attach --new --permission-mode bypassPermissions")
	g.types("0", "go")
	g.shows("0", "Bash runs")
	g.types("0", "what waits")
	g.shows("0", "queued: what waits")
	id := p.session("prompt")
	g.tmux("split-window", "-t", "0", "sleep 600")
	g.tmux("kill-pane", "-t", "0.0") // a window that is closed
	p.alive("cat f")
	g.split("drover attach " + id)
	g.shows("1", "> go", "Bash runs")
	p.free(fifo)
	g.shows("1", "I went on without you.", "> what waits", "And then.")
	g.leaves("1", "drover: left "+id, "left with 0")
	if !p.there("it") {
		t.Error("what ran when the window was closed did not go on")
	}
}

func screenHostile(t *testing.T, p *place, g *glass) {
	evil := "\x1b]2;owned\x07\x1b[2J\x1b[1;1Hgone"
	p.model(map[string][]step{"main": {calls("Bash", bash(`printf '\033]2;owned\007\033[2J\033[1;1Hgone\n'`)), says("text " + evil + " end")}})
	g.open("100", "30", "drover attach --new --permission-mode bypassPermissions")
	g.types("0", "go "+strings.ReplaceAll(evil, "\x1b", ""))
	g.shows("0", "> go ", "● text", "end")
	if title := g.tmux("display-message", "-p", "-t", "0.0", "#{pane_title}"); strings.Contains(title, "owned") {
		t.Errorf("the title is %q", title)
	}
	g.leaves("0", "left with 0")
}

func screenSuspend(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {says("first words"), says("second words")}})
	g.open("80", "24", "sh -i")
	g.types("0", "drover attach --new")
	g.shows("0", "Drover runs commands and agents")
	g.types("0", "hello")
	g.shows("0", "first words")
	g.keys("0", "C-z")
	g.shows("0", "topped", "-first words")
	g.types("0", "echo in the sh''ell")
	g.shows("0", "in the shell")
	g.types("0", "fg")
	g.shows("0", "first words", "-in the shell")
	for _, r := range marked(p.work) {
		if strings.Contains(r.line, "attach --new") {
			if err := syscall.Kill(r.pid, syscall.SIGTSTP); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.shows("0", "in the shell", "-first words")
	g.types("0", "fg")
	g.shows("0", "first words", "-in the shell")
	g.types("0", "more")
	g.shows("0", "second words")
	g.leaves("0", "drover: left ")
}

// What needs somebody in another project is shown where the UI is opened, answered there,
// and gone from both.
func screenInbox(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {calls("Bash", bash("touch it")), echo}})
	p.user(`{"tasks":{"stallAfter":"100ms"}}`)
	other := filepath.Join(p.work, "other")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	g.open("160", "40", "drover attach --new --permission-mode default")
	g.types("0", "touch it")
	g.shows("0", "Allow command touch it?", "command: touch it")
	p.good("run", "-d", "--tty", "--", "sh", "-c", "printf 'Name? '; read name; echo hello $name >name")
	p.good("run", "-d", "--name", "broken", "--", "false")
	g.tmux("split-window", "-h", "-t", "0", "cd "+other+"; drover"+stays)
	g.shows("1", "things need you in other sessions", "in other sessions · alt+i")
	g.keys("1", "M-i")
	g.shows("1", "? asks", "‖ stalled", "Name?", "✗ failed", "broken")
	g.keys("1", "Enter")
	g.shows("1", "Allow command touch it?", "❯ 1. Allow once")
	g.keys("1", "Enter")
	g.shows("0", "-Allow command", "answered elsewhere")
	g.shows("1", "-? asks", "▸ ‖ stalled")
	g.keys("1", "Enter")
	g.shows("1", "enter sends it to the task")
	g.types("1", "Ann")
	g.shows("1", "-‖ stalled", "▸ ✗ failed")
	g.keys("1", "Enter")
	g.shows("1", "Inbox · nothing needs you")
	p.soon(func() bool { return p.there("name") }) // the task got the answer that was typed
	g.keys("1", "Escape")
	g.shows("1", "Drover runs commands and agents", "-in other sessions")
	g.leaves("0", "left with 0")
	g.leaves("1", "left with 0")
}

// Commands show what the session works with, from its host.
// screenPagesBefore shows pages before the first prompt, which then goes to the session that
// they have begun; without one nothing is left.
func screenPagesBefore(t *testing.T, p *place, g *glass) {
	m := p.model(map[string][]step{"main": {says("Good day.")}})
	p.user(`{"permissions":{"deny":["Read(./.env)"]}}`)
	p.file(".claude/settings.json", `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"touch owned"}]}]}}`)
	p.good("mcp", "add", "far", "--", "false")
	g.open("110", "40", "drover")
	for _, c := range []struct {
		command string
		shows   []string
	}{
		{"/permissions", []string{"Mode: default", "Never run", "Read(./.env)"}},
		{"/hooks", []string{"Stop", "touch owned"}},
		{"/mcp", []string{"far"}},
		{"/agents", []string{"explore", "built in"}},
		{"/cost", []string{"Spent:"}},
	} {
		g.types("0", c.command)
		g.shows("0", append(c.shows, "esc back")...)
		g.keys("0", "q")
		g.shows("0", "-esc back")
	}
	g.leaves("0", "left with 0")
	p.leaves(patience, "drover host")
	g.tmux("respawn-pane", "-k", "-t", "0.0", "drover"+stays)
	g.shows("0", "────")
	g.types("0", "/hooks")
	g.shows("0", "touch owned")
	g.keys("0", "q")
	g.types("0", "hello")
	g.shows("0", "Good day.", "-esc interrupts")
	if n := len(m.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	g.leaves("0", "left with 0")
}

// screenHint shows what needs the user in another session without a key, and does not keep that
// session's host.
func screenHint(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {calls("Bash", bash("touch it")), echo}})
	other := filepath.Join(p.work, "other")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	g.open("160", "40", "drover attach --new --permission-mode default")
	g.tmux("split-window", "-h", "-t", "0", "cd "+other+"; drover"+stays)
	g.shows("1", "Drover runs commands and agents", "-in other sessions")
	g.types("0", "touch it")
	g.shows("0", "Allow command touch it?", "command: touch it")
	g.shows("1", "1 thing needs you in other sessions", "✉ 1 in other sessions")
	g.keys("0", "Enter")
	g.shows("0", "-Allow command", "-esc interrupts")
	g.shows("1", "-in other sessions")
	g.leaves("0", "left with 0")
	p.leaves(patience, "drover host")
	g.leaves("1", "left with 0")
}

func screenPages(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer {
		a := modeltest.Text("Good day.")
		a.Usage = agent.Usage{InputTokens: 12_000, OutputTokens: 40}
		return a
	}}})
	p.user(`{"permissions":{"deny":["Read(./.env)"]},"maxBudgetUsd":5}`)
	p.repository()
	p.file("new.txt", "one\n")
	p.file(".claude/settings.json", `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"touch owned"}]}]}}`)
	g.open("110", "40", "drover attach --new --permission-mode plan")
	g.types("0", "hello")
	g.shows("0", "Good day.", "-esc interrupts")
	for _, c := range []struct {
		command string
		shows   []string
	}{
		{"/permissions", []string{"Mode: plan", "Never run", "Read(./.env)", "config/drover/settings.json"}},
		{"/hooks", []string{".claude/settings.json", "Stop", "touch owned", "does not run"}},
		{"/cost", []string{"Spent:", "of $5.00", "12.0k"}},
		{"/context", []string{"in the latest request", "system prompt"}},
		{"/agents", []string{"explore", "built in"}},
		{"/mcp", []string{"no MCP servers"}},
		{"/diff", []string{"?? new.txt"}},
		{"/memory", []string{"Instructions"}},
	} {
		g.types("0", c.command)
		g.shows("0", append(c.shows, "esc back")...)
		g.keys("0", "q")
		g.shows("0", "Good day.")
	}
	g.types("0", "/autopilot on")
	g.shows("0", "plan · autopilot")
	g.types("0", "/autopilot off")
	g.shows("0", "-autopilot")
	g.leaves("0", "left with 0")
}

// Without anything to show the program sleeps: no thread of it is scheduled.
func screenIdle(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {says("Good day.")}})
	g.open("80", "24", "drover attach --new")
	g.types("0", "hello")
	g.shows("0", "Good day.", "-esc interrupts")
	pid := 0
	for _, r := range marked(p.work) {
		if strings.HasPrefix(r.line, "drover attach --new") {
			pid = r.pid
		}
	}
	switches := func() (n int) {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		for _, name := range files {
			data, _ := os.ReadFile(name)
			for line := range strings.Lines(string(data)) {
				if _, count, ok := strings.Cut(line, "ctxt_switches:"); ok {
					one, _ := strconv.Atoi(strings.TrimSpace(count))
					n += one
				}
			}
		}
		return n
	}
	const still = 500 * time.Millisecond
	last, since := -1, time.Now()
	if !within(patience, func() bool {
		if now := switches(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > still
	}) {
		t.Errorf("process %d was scheduled again and again, %d times by now", pid, last)
	}
	g.types("0", "x")
	g.shows("0", "> x")
}

// While the window has no focus, the end of a turn is told by the terminal, which is asked
// to tell of the focus.
func screenNotify(t *testing.T, p *place, g *glass) {
	p.model(map[string][]step{"main": {says("first words"), says("second words")}})
	g.open("80", "24", "sh -i")
	out := filepath.Join(p.work, "terminal")
	g.tmux("pipe-pane", "-t", "0.0", "cat >"+out)
	said := func(text string) bool {
		data, _ := os.ReadFile(out)
		return strings.Contains(string(data), text)
	}
	g.types("0", "drover attach --new")
	g.shows("0", "Drover runs commands and agents")
	if !within(patience, func() bool { return said("\x1b[?1004h") }) {
		t.Error("the terminal is not asked to tell of the focus")
	}
	g.types("0", "hello")
	g.shows("0", "first words", "-esc interrupts")
	if said("\x1b]9;") {
		t.Error("somebody who looks was called")
	}
	g.keys("0", "-l", "\x1b[O") // as a terminal tells that its window has lost the focus
	g.types("0", "more")
	g.shows("0", "second words", "-esc interrupts")
	if !within(patience, func() bool { return said("\x1b]9;Drover is done") }) {
		t.Error("nobody was called")
	}
	g.leaves("0", "drover: left ")
}

// TestDemoTerminal gives the tour in a terminal that is narrow.
func TestDemoTerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIPPED: tmux is not on the PATH, so the tour is not given in a terminal")
	}
	p := newPlace(t, build(t))
	g := newGlass(t, p)
	g.open("70", "50", "env drover demo")
	g.shows("0", "ok    no newline at the end", "Every process has ended", "left with 0")
}
