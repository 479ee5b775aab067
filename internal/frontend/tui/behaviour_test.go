package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/task"
)

func TestPrompt(t *testing.T) {
	u := start(t, 80, 24)
	u.types("hello")
	u.press("shift+enter")
	u.types("there")
	u.press("enter")
	u.did("prompt hello\nthere")
	u.sees("sending")
	u.hear(opened(), begin("hello\nthere"), says("good day"), end())
	u.sees("> hello\n  there", "● good day")
	u.misses("esc interrupts")
}

// Prompts wait while the agent works, can be taken back, and go one by one.
func TestQueue(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.types("one")
	u.press("enter")
	u.types("two")
	u.press("enter")
	u.did("")
	u.sees("queued: one", "queued: two")
	u.press("up")
	u.sees("> two")
	u.misses("queued: two")
	u.types(", better")
	u.press("enter")
	u.hear(end())
	u.did("prompt one")
	u.hear(begin("one"), end())
	u.did("prompt two, better")
}

// Esc interrupts the turn and sends nothing: what waited is given back.
func TestInterrupt(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.types("next")
	u.press("enter", "esc")
	u.did("interrupt s12345678")
	u.hear(control.Piece{Kind: control.EndPiece, Error: "interrupted by the user"})
	u.did("")
	u.sees("> next", "✗ Interrupted")
	u.press("ctrl+c")
	u.misses("> next")
}

// Esc right behind a prompt interrupts the turn that it begins.
func TestInterruptEarly(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened())
	u.types("go")
	u.press("enter", "esc")
	u.did("prompt go")
	u.hear(begin("go"))
	u.did("interrupt s12345678")
}

func TestRefusedPrompt(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened())
	u.api.fail = errors.New("no room")
	u.types("go")
	u.press("enter")
	u.sees("> go", "the prompt was not taken: no room")
}

// A paste of 100 kB is one chip, and one prompt.
func TestPaste(t *testing.T) {
	u := start(t, 80, 24)
	big := strings.Repeat("0123456789012345678901234567890123456789012345678\n", 2048)
	u.types("look: ")
	u.tell(tea.PasteMsg{Content: big})
	u.sees("> look: [pasted text 1: 2049 lines]")
	u.press("enter")
	if got := u.api.done(); got != "prompt look: "+strings.TrimSpace(big) {
		t.Errorf("sent %d bytes, want %d", len(got), len(big))
	}
	u.tell(tea.PasteMsg{Content: "a\nb\nc"})
	u.sees("> a\n  b\n  c")
}

func TestBackground(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.event(task.Create, u.command("b1", false))
	u.misses("ctrl+b")
	u.pass(3 * time.Second)
	u.sees("ctrl+b: to the background")
	u.press("ctrl+b")
	u.did("promote b1")
	u.event(task.Background, u.command("b1", true))
	u.sees("1 shell · Shift+Down")
	u.misses("ctrl+b: to")
	u.press("ctrl+b") // it waits for nothing more
	u.did("promote s12345678")
	u.event(task.Create, task.Record{ID: "s99999999", AgentType: task.MainSession, Kind: task.LocalAgent, Owner: "s12345678",
		Status: task.Running, Backgrounded: true, Description: "go"})
	u.hear(end())
	u.sees("2 background tasks · Shift+Down")
}

// A second ctrl+b moves the turn although the screen does not know yet that the command has moved.
func TestBackgroundTwice(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.event(task.Create, u.command("b1", false))
	u.press("ctrl+b", "ctrl+b")
	u.did("promote b1\npromote s12345678")
	u.hear(end())
	u.event(task.Background, u.command("b1", true))
	u.press("ctrl+b")
	u.sees("the agent is in no turn")
}

// A permission is shown decoded, and an answer is bound to what was shown.
func TestPermission(t *testing.T) {
	q := task.Question{ID: "q1", Agent: "main", Tool: "Bash", Suggest: "Bash(rm:*)", Digest: "d1",
		Input: []byte(`{"command":"\u0072\u006d x"}`)}
	for _, c := range []struct{ keys, want string }{
		{"enter", `decide q1 d1 allow=true always="" reason="" text=""`},
		{"2", `decide q1 d1 allow=true always="Bash(rm:*)" reason="" text=""`},
		{"down down enter n o enter", `decide q1 d1 allow=false always="" reason="no" text=""`},
		{"esc", ""},
	} {
		u := start(t, 100, 30)
		u.hear(opened(), begin("go"))
		u.ask(q)
		u.sees("Allow command", "command: rm x", "adds the rule Bash(rm:*) to .drover/settings.local.json")
		u.press(strings.Fields(c.keys)...)
		u.did(c.want)
		if c.keys == "esc" {
			u.misses("Allow command")
			u.sees("1 question · ctrl+g")
			u.press("ctrl+g")
			u.sees("Allow command")
		}
	}
}

// What is being typed when a question appears answers nothing, however long that goes on, and
// what was typed before it was drawn neither.
func TestTypedAhead(t *testing.T) {
	q := task.Question{ID: "q1", Tool: "Bash", Digest: "d"}
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.tell(news{epoch: u.m.epoch, questions: &control.Approvals{Questions: []task.Question{q}}})
	round := calm{u.m.ask, u.m.ask.typed}
	for range 5 { // keys between the rounds
		u.types("1 more ")
		u.tell(round)
		u.at = u.at.Add(time.Second)
	}
	u.press("enter") // sends the prompt, which waits
	u.did("")
	u.sees("queued: 1 more 1 more", "…")
	u.tell(calm{u.m.ask, u.m.ask.typed})
	u.press("enter")
	u.did("")
	u.rests()
	u.sees("enter answers")
	u.press("1")
	u.did(`decide q1 d allow=true always="" reason="" text=""`)

	// It comes while something else is on the screen, and keys follow the one that goes back.
	u = start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.press("shift+down")
	u.ask(q)
	u.press("esc", "enter")
	u.did("")
	u.rests()
	u.tell(tea.WindowSizeMsg{Width: 10, Height: 3}) // nobody can read it there
	u.press("enter")
	u.tell(tea.WindowSizeMsg{Width: 80, Height: 24})
	u.press("enter")
	u.did("")
	u.rests()
	u.press("enter")
	u.did(`decide q1 d allow=true always="" reason="" text=""`)

	// It comes during a search, and the enter that ends that is followed by another.
	u = start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.press("ctrl+r")
	u.ask(q)
	u.press("enter", "enter")
	u.did("")
}

// A question that was answered in another terminal goes away in this one.
func TestAnsweredElsewhere(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.ask(task.Question{ID: "q1", Tool: "Bash", Digest: "d"})
	u.sees("Allow Bash")
	u.ask()
	u.misses("Allow Bash")
	u.sees("answered elsewhere")
}

func TestChoice(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.ask(choiceQuestion())
	u.press("2")
	u.did(`decide q2 d2 allow=true always="" reason="" text="blue"`)
	u = start(t, 80, 24)
	u.ask(choiceQuestion())
	u.press("3")
	u.types("green")
	u.press("enter")
	u.did(`decide q2 d2 allow=true always="" reason="" text="green"`)
}

// The panel stops only what is asked for twice, shows the receipt, and lets ended tasks
// go after their grace, unless they are looked at.
func TestPanel(t *testing.T) {
	u := start(t, 100, 30)
	u.talk()
	u.team()
	u.press("shift+down")
	u.sees("explore · Find the parser", "└ ● running", "✗ failed", "output of b1")
	u.press("x")
	u.did("")
	u.sees("press x again")
	u.press("x")
	u.did("stop b1")
	u.sees("b1 killed after 12ms; nothing of it is left")
	u.press("down", "p")
	u.did("pause [a1]")
	u.press("s")
	u.types("hurry")
	u.press("enter")
	u.did("send a1 hurry")
	u.pass(31 * time.Second)
	u.misses("✗ failed")
	u.press("a")
	u.sees("✗ failed")
	u.press("esc")
	u.sees("● Done.")
}

func TestZoom(t *testing.T) {
	u := start(t, 100, 30)
	u.talk()
	u.team()
	u.press("shift+down", "down", "enter")
	u.sees("explore · Find the parser", "> to a1")
	u.types("look left")
	u.press("enter")
	u.did("send a1 look left")
	u.press("esc", "esc")
	u.sees("● Done.")
}

// Leaving asks when something runs, and ends at once when nothing does.
func TestLeave(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened())
	u.press("ctrl+d")
	u.did("quit")
	u.event(task.Create, u.command("b1", true))
	u.press("ctrl+c", "ctrl+c")
	u.sees("These tasks are running", "Run the tests")
	u.press("esc")
	u.did("")
	u.press("ctrl+d", "2")
	u.did("stop b1\nquit")
	if !strings.Contains(u.m.farewell, "b1 killed") {
		t.Errorf("the receipt is %q", u.m.farewell)
	}
}

// A host that goes away is told of, and the next prompt reaches the next one.
func TestHostGone(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"), says("half"))
	u.tell(news{epoch: u.m.epoch, lost: errHostGone})
	u.sees("the host of the session has ended", "half")
	u.types("go on")
	u.press("enter")
	u.did("prompt go on")
	u.misses("has ended")
}

// Model and mode of a live session are changed for its next call, and the line at the
// bottom says what holds.
func TestConfigure(t *testing.T) {
	u := start(t, 100, 24)
	u.talk()
	u.press("shift+tab")
	u.did("configure opus acceptEdits")
	u.sees("opus · acceptEdits · 12.3k of 200k context (6%)")
	u.press("shift+tab")
	u.did("configure opus plan")
	u.types("/model haiku")
	u.press("enter")
	u.did("configure haiku default")
	u.sees("haiku · default")
}

func TestCompletion(t *testing.T) {
	u := start(t, 80, 24)
	u.types("/ta")
	u.sees("/tasks")
	u.press("tab")
	u.sees("> /tasks")
	u.press("enter")
	u.sees("Nothing runs here")
	u = start(t, 80, 24)
	u.types("/rev")
	u.sees("/review", "Review the changes")
	u.press("tab", "m", "e", "enter")
	u.did("prompt /review me")
	u.hear(opened(), begin("x"), end())
	u.types("/nothing")
	u.press("enter")
	u.did("")
	u.sees("there is no command /nothing")
	u = start(t, 80, 24)
	u.m.complete.files, u.m.complete.readAt = []string{"cmd/main.go", "internal/parse.go", "parse_test.go"}, u.at
	u.types("see @par")
	u.sees("@parse_test.go", "@internal/parse.go")
	u.press("down", "enter")
	u.sees("> see @internal/parse.go")
}

func TestHistory(t *testing.T) {
	u := start(t, 80, 24, func(o *Options) { o.History = []string{"first one", "second one"} })
	u.types("draft")
	u.press("up", "up")
	u.sees("> first one")
	u.press("down", "down")
	u.sees("> draft")
	u.press("ctrl+c", "ctrl+r")
	u.types("one")
	u.sees("search: one", "second one")
	u.press("ctrl+r")
	u.sees("first one")
	u.press("enter")
	u.sees("> first one")
}

// Nothing is drawn again when nothing of it has changed, and a piece of an answer draws
// that answer alone.
func TestDrawnOnce(t *testing.T) {
	u := start(t, 80, 24)
	u.talk()
	u.screen()
	was := u.m.drawer.Drawn
	for range 10 {
		u.pass(time.Second)
		u.screen()
	}
	if n := u.m.drawer.Drawn - was; n != 0 {
		t.Errorf("%d blocks were drawn though nothing had changed", n)
	}
	u.hear(says(" And"))
	u.screen()
	was = u.m.drawer.Drawn
	u.hear(control.Piece{Kind: control.TextPiece, Text: " more."})
	u.screen()
	if n := u.m.drawer.Drawn - was; n != 1 {
		t.Errorf("%d blocks were drawn for a piece of one", n)
	}
}

// While nothing moves the program does not wake.
func TestIdle(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"), says("done"), end())
	u.m.ticking = false
	if u.m.clock() != nil {
		t.Error("it ticks though nothing moves")
	}
	u.hear(begin("more"))
	u.m.ticking = false
	if u.m.clock() == nil {
		t.Error("the spinner does not move")
	}
}

// The text stays where it is while the user has scrolled up, and follows again at its end.
func TestScroll(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	for i := range 40 {
		u.hear(says(fmt.Sprintf("answer %d", i)), called("Bash", `{"command":"x"}`), result("Bash", "y"))
	}
	u.sees("answer 39")
	u.press("pgup", "pgup")
	u.sees("more below")
	before := u.screen()
	u.hear(says("one more"))
	if after := u.screen(); strings.Split(after, "\n")[3] != strings.Split(before, "\n")[3] {
		t.Errorf("it moved:\n%s\nwas\n%s", after, before)
	}
	u.press("pgdown", "pgdown", "pgdown")
	u.sees("one more")
	u.misses("more below")
	u.press("ctrl+home")
	u.sees("> go")
	u.press("ctrl+end")
	u.sees("one more")
}

// large is a session with 100,000 lines of conversation and 1,000 tasks.
func large(b testing.TB) *Model {
	m := newModel(Options{Now: time.Now}, &listener{deaf: true})
	m.width, m.height = 140, 40
	text := strings.Repeat("a line of an answer that is about as long as such lines are\n\n", 50)
	for i := int64(1); len(m.talk.Blocks) < 2000; i += 3 {
		m.talk.Apply(control.Piece{N: i, Kind: control.TextPiece, Text: text})
		m.talk.Apply(control.Piece{N: i + 1, Kind: control.CallPiece, Tool: "Bash", Call: "c", Text: `{"command":"x"}`})
		m.talk.Apply(control.Piece{N: i + 2, Kind: control.ResultPiece, Tool: "Bash", Call: "c", Text: "y"})
	}
	began := time.Now()
	for i := range 1000 {
		m.tasks.Event(task.Event{Task: task.Record{ID: task.ID(fmt.Sprintf("b%08d", i)), Kind: task.LocalBash, Status: task.Running,
			Backgrounded: true, Command: "make", CreateTime: began.Add(time.Duration(i)), StartTime: &began}}, began)
	}
	m.View()
	if b, ok := b.(*testing.B); ok {
		b.ResetTimer()
	}
	return m
}

// BenchmarkFrame is a frame while the newest answer grows.
func BenchmarkFrame(b *testing.B) {
	m := large(b)
	for i := range b.N {
		m.talk.Apply(control.Piece{N: int64(9000 + i), Kind: control.TextPiece, Text: "word "})
		m.View()
	}
}

// BenchmarkPanelFrame is a frame of the tasks while one of them moves.
func BenchmarkPanelFrame(b *testing.B) {
	m := large(b)
	m.screen = panelScreen
	began := time.Now()
	for i := range b.N {
		m.tasks.Event(task.Event{Verb: task.Create, Task: task.Record{ID: task.ID(fmt.Sprintf("c%08d", i%100)), Kind: task.LocalBash,
			Status: task.Running, CreateTime: began, StartTime: &began}}, began)
		m.View()
	}
}

// BenchmarkKey is a key that is typed, up to its frame.
func BenchmarkKey(b *testing.B) {
	m := large(b)
	for i := range b.N {
		if i%100 == 0 {
			m.editor = input.New(nil)
		}
		m.Update(tea.KeyPressMsg(tea.Key{Code: 'x', Text: "x"}))
		m.View()
	}
}

// Who looks elsewhere is called when the agent asks something, and nobody else.
func TestCall(t *testing.T) {
	u := start(t, 80, 24)
	q := []task.Question{{ID: "q1", Tool: "Bash", Digest: "d"}}
	ask := news{epoch: u.m.epoch, questions: &control.Approvals{Questions: q}}
	u.m.ticking = true
	if u.m.hear(ask) != nil {
		t.Error("somebody who looks was called")
	}
	u.m.ask = nil
	u.tell(tea.BlurMsg{})
	cmd := u.m.hear(ask)
	if cmd == nil {
		t.Fatal("nobody was called")
	}
	for _, c := range []struct{ notify, env, want string }{
		{"", "TERM=xterm-256color", "\a\x1b]9;Drover asks you something\x1b\\"},
		{"osc", "VTE_VERSION=7600", "\a\x1b]777;notify;Drover;Drover asks you something\x1b\\"},
		{"osc", "KITTY_WINDOW_ID=1", "\a\x1b]99;;Drover asks you something\x1b\\"},
		{"osc", "VTE_VERSION=", "\a\x1b]9;Drover asks you something\x1b\\"},
		{"bell", "", "\a"},
	} {
		u.m.o.Notify, u.m.o.Env = c.notify, []string{c.env}
		if text := fmt.Sprint(u.m.call("Drover asks you something")()); text != "{"+c.want+"}" {
			t.Errorf("%s: called by %q, want %q", c.notify, text, c.want)
		}
	}
	u.m.o.Notify = "bell"
	u.m.o.Loud, _ = daypart.Parse(u.m.now.Local().Add(time.Hour).Format("15:04") + "-" + u.m.now.Local().Add(2*time.Hour).Format("15:04"))
	if u.m.call("x") != nil {
		t.Error("somebody was called in quiet hours")
	}
	u.m.o.Loud, u.m.o.Notify = daypart.Part{}, "off"
	if u.m.call("x") != nil {
		t.Error("somebody was called who does not want it")
	}
}

// mostFrame is how many allocations a frame may make; one for each line or task would be more.
const mostFrame = 2_000

// No frame costs more with 100,000 lines of conversation and 1,000 tasks. Allocations are counted, since a busy machine
// makes the clock useless.
func TestFrame(t *testing.T) {
	m := large(t)
	for name, step := range map[string]func(int){
		"grows": func(i int) { m.talk.Apply(control.Piece{N: int64(9000 + i), Kind: control.TextPiece, Text: "word "}) },
		"key":   func(int) { m.Update(tea.KeyPressMsg(tea.Key{Code: 'x', Text: "x"})) },
		"page":  func(int) { m.Update(pressed("pgup")) },
		"flood": func(i int) {
			for k := range 20 {
				r, _ := m.tasks.Record(task.ID(fmt.Sprintf("b%08d", k)))
				r.OutputBytes += int64(i)
				m.happened(task.Event{Verb: task.Report, Task: r})
			}
		},
		"tasks": func(i int) { m.screen = panelScreen; m.tasks.Key("down", m.now) },
	} {
		i := 0
		n := testing.AllocsPerRun(10, func() {
			step(i)
			m.View()
			i++
		})
		m.screen = chatScreen
		t.Logf("%s: %.0f allocations", name, n)
		if n > mostFrame {
			t.Errorf("%s: a frame makes %.0f allocations, want at most %d", name, n, mostFrame)
		}
	}
}

// Teammates are rows below the spinner, and are not counted again at the bottom as long as
// nothing else runs in the background.
func TestTeam(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	for i, name := range []string{"ann", "ben"} {
		began := u.at.Add(time.Duration(i))
		u.event(task.Create, task.Record{ID: task.ID("t" + name), Kind: task.InProcessTeammate, Status: task.Running, Name: name, Idle: i == 1,
			Backgrounded: true, CreateTime: began, Team: &task.Team{Team: "x", Name: name},
			Progress: &task.Progress{LastActivity: &task.Activity{ToolName: "Read"}}})
	}
	u.sees("├ ● ann Read", "└ ○ ben idle")
	u.misses("Shift+Down")
	u.event(task.Create, u.command("b1", true))
	u.sees("3 background tasks · Shift+Down")
}

// Esc twice in an idle conversation lists its prompts; the chosen one is in the editor of a
// copy that goes on before it.
func TestRewind(t *testing.T) {
	var went []task.ID
	u := start(t, 80, 24, func(o *Options) {
		o.Switch = func(_ context.Context, id task.ID) (Connection, error) {
			went = append(went, id)
			return Connection{API: &session{}, Info: control.Info{Session: id}, Release: func() {}}, nil
		}
	})
	u.hear(opened(), begin("first thing"), end(), begin("second thing"), end())
	u.press("esc")
	u.sees("esc again goes back to an earlier prompt")
	u.press("esc")
	u.sees("Go back to before a prompt", "first thing", "❯ second thing")
	u.press("up", "enter")
	u.did("fork 1")
	u.sees("> first thing")
	if len(went) != 1 || went[0] != "s00000009" {
		t.Errorf("went to %v", went)
	}
}
