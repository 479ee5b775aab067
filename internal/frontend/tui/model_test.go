package tui

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

//rules:constant set by the testing package only
var update = flag.Bool("update", false, "write the golden frames anew")

// session is a session that does what it is asked and remembers it.
type session struct {
	control.API // what is not needed must not be called

	mu    sync.Mutex
	calls []string
	fail  error           // of prompts
	back  []control.Image // of the prompt before which it is forked
	pages []task.Record
	said  []control.Message // by every agent; nil: that it was asked
	reads int               // of messages
}

func (s *session) did(format string, v ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, v...))
}

// done are the calls since the last time.
func (s *session) done() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.calls, "\n")
	s.calls = nil
	return text
}

func (s *session) Prompt(_ context.Context, r control.PromptRequest) error {
	s.did("prompt %s", r.Text)
	for _, i := range r.Images {
		s.did("image %s %d", i.Name, len(i.Data))
	}
	return s.fail
}

func (s *session) Prompts(context.Context) (control.Prompts, error) {
	return control.Prompts{Prompts: []control.PromptEntry{{N: 1, ID: "u1", Text: "first thing"}, {N: 2, ID: "u2", Text: "second thing"}}}, nil
}

func (s *session) Comment(context.Context, control.CommentRequest) (task.Record, error) {
	return task.Record{}, nil
}

func (s *session) Diff(context.Context, control.DiffRequest) (control.Diff, error) {
	return control.Diff{}, nil
}

func (s *session) Fork(_ context.Context, r control.ForkRequest) (control.Forked, error) {
	s.did("fork %d", r.At)
	if r.Images && s.back != nil {
		return control.Forked{Session: "s00000009", Prompt: "first [image 1: a.png] thing", Images: s.back}, nil
	}
	return control.Forked{Session: "s00000009", Prompt: "first thing"}, nil
}

func (s *session) Interrupt(_ context.Context, ref string) (task.Record, error) {
	s.did("interrupt %s", ref)
	return task.Record{}, nil
}

func (s *session) Promote(_ context.Context, ref string) (task.Record, error) {
	s.did("promote %s", ref)
	return task.Record{}, nil
}

func (s *session) Stop(_ context.Context, r control.StopRequest) (task.Receipt, error) {
	s.did("stop %s", strings.Join(r.Refs, " "))
	return task.Receipt{Stopped: []task.Stopped{{ID: task.ID(r.Refs[0]), Status: task.Killed, EndedAfterMS: 12}}}, nil
}

func (s *session) Decide(_ context.Context, r control.DecideRequest) error {
	var input string
	if r.Reply.Input != nil {
		input = " input=" + string(r.Reply.Input)
	}
	if r.Reply.AcceptEdits {
		input += " edits"
	}
	s.did("decide %s %s allow=%t always=%q reason=%q text=%q%s", r.ID, r.Digest, r.Reply.Allow, r.Always, r.Reply.Reason, r.Reply.Text, input)
	return nil
}

func (s *session) Configure(_ context.Context, r control.ConfigureRequest) (control.Settings, error) {
	set := control.Settings{Model: "opus", Mode: "default", Window: 200_000}
	if r.Mode != nil {
		set.Mode = *r.Mode
	}
	if r.Model != nil {
		set.Model = *r.Model
	}
	if r.SessionMode != nil {
		set.SessionMode = *r.SessionMode
		s.did("configure %s", set.SessionMode)
		return set, nil
	}
	s.did("configure %s %s", set.Model, set.Mode)
	return set, nil
}

func (s *session) Commands(context.Context) (control.Commands, error) {
	return control.Commands{Commands: []control.Command{{Name: "compact"}, {Name: "review", Description: "Review the changes"}}}, nil
}

func (s *session) Send(_ context.Context, r control.SendRequest) (task.Record, error) {
	s.did("send %s %s", r.Ref, r.Text)
	return task.Record{}, nil
}

func (s *session) Pause(_ context.Context, refs []string) ([]task.Record, error) {
	s.did("pause %s", refs)
	return nil, nil
}

func (s *session) Resume(_ context.Context, r control.ResumeRequest) (task.Record, error) {
	s.did("resume %s", r.Ref)
	return task.Record{}, nil
}

func (s *session) List(context.Context, control.ListRequest) (control.Page, error) {
	return control.Page{Tasks: s.pages}, nil
}

func (s *session) Output(_ context.Context, r control.OutputRequest) (control.Chunk, error) {
	return control.Chunk{Data: []byte("output of " + r.Ref + "\n"), Ended: true}, nil
}

func (s *session) Messages(_ context.Context, r control.MessagesRequest) (control.Messages, error) {
	s.reads++
	if s.said != nil {
		return control.Messages{List: s.said}, nil
	}
	return control.Messages{List: []control.Message{{Role: "user", Parts: []control.Part{{Type: "text", Text: "to " + r.Ref}}}}}, nil
}

// user drives a model as the program would, with a clock of its own.
type user struct {
	t   *testing.T
	m   *Model
	api *session
	at  time.Time
	n   int64 // of the last piece
}

func start(t *testing.T, width, height int, change ...func(*Options)) *user {
	t.Helper()
	u := &user{t: t, api: &session{}, at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	o := Options{Now: func() time.Time { return u.at }, Folder: "/home/ann/project", Version: "1.2.3",
		Connect: func(context.Context) (Connection, error) {
			return Connection{API: u.api, Info: control.Info{Session: "s12345678"}, Release: func() {}}, nil
		}}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{ctx: ctx, send: func(tea.Msg) {}, suspend: make(chan struct{}, 1), deaf: true}
	t.Cleanup(func() { cancel(); l.close() })
	u.m = newModel(o, l)
	u.run(u.m.Init())
	u.tell(tea.WindowSizeMsg{Width: width, Height: height})
	return u
}

// run runs commands and what they lead to. It leaves out ticks, which it knows by the function
// that made them, and gives up on a command that waits for something else.
func (u *user) run(cmd tea.Cmd) {
	if cmd == nil || strings.Contains(runtime.FuncForPC(reflect.ValueOf(cmd).Pointer()).Name(), "bubbletea/v2.Tick") {
		return
	}
	answer := make(chan tea.Msg, 1)
	go func() { answer <- cmd() }()
	select {
	case msg := <-answer:
		switch msg := msg.(type) {
		case nil:
		case tea.BatchMsg:
			for _, c := range msg {
				u.run(c)
			}
		case tea.QuitMsg:
			u.api.did("quit")
		default:
			u.tell(msg)
		}
	case <-time.After(time.Second): // it waits
	}
}

// someTodos are to-dos, of which one is in progress by owner.
func someTodos(owner string) todo.List {
	return todo.List{Items: []todo.Item{{ID: 1, Subject: "Read it", Status: todo.Completed},
		{ID: 2, Subject: "Fix the parser", ActiveForm: "Fixing the parser", Status: todo.InProgress, Owner: owner},
		{ID: 3, Subject: "Write tests", Status: todo.Pending, BlockedBy: []todo.ID{2}}}}
}

// effect applies the effect of a command.
func (u *user) effect(e effect) { u.tell(e) }

func (u *user) tell(msg tea.Msg) {
	_, cmd := u.m.Update(msg)
	u.m.ticking = true // ticks are told by pass
	u.run(cmd)
}

// pass lets time go by.
func (u *user) pass(d time.Duration) {
	u.at = u.at.Add(d)
	u.tell(tick{})
	u.m.ticking = true
}

// press presses keys, by their names.
func (u *user) press(keys ...string) {
	for _, k := range keys {
		u.tell(pressed(k))
	}
}

func pressed(name string) tea.KeyPressMsg {
	var k tea.Key
	rest := name
	for {
		mod, more, ok := strings.Cut(rest, "+")
		bit := map[string]tea.KeyMod{"ctrl": tea.ModCtrl, "alt": tea.ModAlt, "shift": tea.ModShift}[mod]
		if !ok || bit == 0 {
			break
		}
		k.Mod |= bit
		rest = more
	}
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft,
		"right": tea.KeyRight, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "tab": tea.KeyTab, "backspace": tea.KeyBackspace,
		"home": tea.KeyHome, "end": tea.KeyEnd, "delete": tea.KeyDelete, "space": tea.KeySpace, "f1": tea.KeyF1}
	if c, ok := codes[rest]; ok {
		k.Code = c
	} else {
		k.Code = []rune(rest)[0]
		if k.Mod == 0 {
			k.Text = rest
		}
	}
	if rest == "space" && k.Mod == 0 {
		k.Text = " "
	}
	return tea.KeyPressMsg(k)
}

// types types a text.
func (u *user) types(text string) {
	for _, r := range text {
		u.tell(tea.KeyPressMsg(tea.Key{Code: r, Text: string(r)}))
	}
}

// hear tells pieces of the conversation.
func (u *user) hear(pieces ...control.Piece) {
	for i := range pieces {
		if pieces[i].Kind != control.OpenPiece {
			u.n++
			pieces[i].N = u.n
		}
		pieces[i].At = u.at
	}
	u.tell(news{epoch: u.m.epoch, pieces: pieces})
}

func (u *user) event(v task.Verb, r task.Record) {
	e := task.Event{Verb: v, At: u.at, Task: r}
	if v != "" {
		u.hear(control.Piece{Kind: control.TaskPiece, Event: &e})
	}
	u.tell(news{epoch: u.m.epoch, events: []task.Event{e}})
}

func (u *user) ask(open ...task.Question) {
	u.tell(news{epoch: u.m.epoch, questions: &control.Approvals{Questions: open}})
	u.rests()
}

// rests types nothing until the question that is shown takes answers.
func (u *user) rests() {
	for range calmRounds {
		if u.m.ask != nil {
			u.tell(calm{u.m.ask, u.m.ask.typed})
		}
	}
}

// screen is what is seen, without styles.
func (u *user) screen() string {
	text := ansi.Strip(u.m.View().Content)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if w := ansi.StringWidth(line); w > u.m.width {
			u.t.Errorf("line %d has %d columns of %d: %q", i, w, u.m.width, line)
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	if len(lines) > u.m.height {
		u.t.Errorf("%d lines of %d:\n%s", len(lines), u.m.height, text)
	}
	return strings.Join(lines, "\n") + "\n"
}

// sees fails unless texts are on the screen.
func (u *user) sees(texts ...string) {
	u.t.Helper()
	got := u.screen()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			u.t.Fatalf("no %q on the screen:\n%s", text, got)
		}
	}
}

func (u *user) misses(text string) {
	u.t.Helper()
	if got := u.screen(); strings.Contains(got, text) {
		u.t.Fatalf("%q is on the screen:\n%s", text, got)
	}
}

// did fails unless the session was asked just this.
func (u *user) did(want string) {
	u.t.Helper()
	if got := u.api.done(); got != want {
		u.t.Fatalf("the session was asked\n%s\nwant\n%s", got, want)
	}
}

func begin(text string) control.Piece { return control.Piece{Kind: control.BeginPiece, Text: text} }
func says(text string) control.Piece  { return control.Piece{Kind: control.TextPiece, Text: text} }
func called(tool, input string) control.Piece {
	return control.Piece{Kind: control.CallPiece, Tool: tool, Call: "c" + tool, Text: input}
}
func result(tool, text string) control.Piece {
	return control.Piece{Kind: control.ResultPiece, Tool: tool, Call: "c" + tool, Text: text}
}

func failure(tool, text, why string) control.Piece {
	p := result(tool, text)
	p.Error = why
	return p
}

func opened() control.Piece { return control.Piece{Kind: control.OpenPiece} }
func end() control.Piece    { return control.Piece{Kind: control.EndPiece} }

func (u *user) command(id task.ID, background bool) task.Record {
	began := u.at
	return task.Record{ID: id, Kind: task.LocalBash, Status: task.Running, Command: "make test", Description: "Run the tests",
		CreateTime: began, StartTime: &began, Backgrounded: background}
}

// talk is a conversation with one of everything.
func (u *user) talk() {
	u.hear(opened(), begin("fix the parser"), control.Piece{Kind: control.ThinkingPiece, Text: "Look first.\nThen act."},
		says("I look at it.\n\n- first\n- second\n\n```go\nfunc main() {}\n```\n"),
		called("Bash", `{"command":"go test ./..."}`), result("Bash", "ok a\nok b\nok c\nok d\nok e"),
		called("Edit", `{"file_path":"parse.go","old_string":"a := 1\nb := 2\n","new_string":"a := 1\nb := 3\n"}`), result("Edit", "edited"),
		says("Done."))
	u.event("", task.Record{ID: "s12345678", AgentType: task.MainSession, Kind: task.LocalAgent, Status: task.Running, Model: "opus",
		Mode: "default", Progress: &task.Progress{TokenCount: 12345}})
	u.event(task.Create, u.command("b1", true))
}

func TestFrames(t *testing.T) {
	scenes := map[string]func(*user){
		"welcome": func(*user) {},
		"talk":    func(u *user) { u.talk(); u.pass(3 * time.Second); u.types("and then?") },
		"permission": func(u *user) {
			u.talk()
			u.ask(task.Question{ID: "q1", Agent: "main", Tool: "Bash", Reason: "no rule allows rm", Suggest: "Bash(rm:*)",
				Input: json.RawMessage(`{"command":"\u0072\u006d -rf build \u202e","description":"clean"}`), Digest: "d", Until: u.at.Add(time.Minute)})
		},
		"plan": func(u *user) {
			u.talk()
			u.ask(planQuestion(u.t, task.ExitPlanMode, "# Parser\n\nReplace the **parser**:\n\n1. read `parse.go`\n2. write\n\n"+
				"```go\nfunc Parse() error\n```\n\n| file | change |\n|---|---|\n| parse.go | new |"))
		},
		"question": func(u *user) {
			u.talk()
			u.ask(choiceQuestion())
		},
		"panel": func(u *user) {
			u.talk()
			u.team()
			u.press("shift+down")
			u.pass(12 * time.Second)
		},
		"failed": func(u *user) {
			u.hear(opened(), begin("try it"), called("Bash", `{"command":"rm -rf build"}`), failure("Bash", "denied: no rule allows rm", "denied: no rule allows rm"),
				called("Test", `{"command":"go test ./..."}`), failure("Test", "ok a\nok b\n--- FAIL: TestParse\nFAIL\n\nExit code 1", "Exit code 1"),
				called("Edit", `{"file_path":"parse.go","old_string":"a := 1\n","new_string":"a := 2\n"}`), failure("Edit", "old_string is not in parse.go", "old_string is not in parse.go"),
				called("Read", `{"file_path":"parse.go"}`), end())
		},
		"inbox":    func(u *user) { u.talk(); u.press("alt+i") },
		"inboxask": func(u *user) { u.talk(); u.press("alt+i", "enter") },
		"leave":    func(u *user) { u.talk(); u.press("ctrl+d") },
		"todos": func(u *user) {
			u.talk()
			u.m.takeTodos(someTodos(""), nil)
		},
	}
	for name, scene := range scenes {
		for _, size := range [][2]int{{60, 20}, {80, 24}, {140, 40}} {
			t.Run(fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), func(t *testing.T) {
				u := start(t, size[0], size[1], func(o *Options) {
					if strings.HasPrefix(name, "inbox") {
						newWorld().options(o)
					}
				})
				scene(u)
				golden(t, u.screen())
			})
		}
	}
}

func choiceQuestion() task.Question {
	return task.Question{ID: "q2", Kind: task.Choice, Agent: "main", Tool: "AskUserQuestion", Digest: "d2", Input: json.RawMessage(
		`{"questions":[{"question":"Which colour?","header":"Colour","options":[{"label":"red","description":"warm"},{"label":"blue","description":"cold"}]}]}`)}
}

// team is an agent with a command below it, and a task that has ended.
func (u *user) team() {
	began := u.at
	heard := u.at
	cost := 0.12
	agent := task.Record{ID: "a1", Kind: task.LocalAgent, Status: task.Running, AgentType: "explore", Description: "Find the parser",
		CreateTime: began.Add(time.Second), StartTime: &began, Backgrounded: true, LastHeard: &heard,
		Progress: &task.Progress{TokenCount: 4321, CostUSD: &cost}}
	below := u.command("b2", false)
	below.Parent, below.CreateTime = "a1", began.Add(2*time.Second)
	ended := u.command("b3", true)
	ended.Status, ended.EndTime, ended.CreateTime = task.Failed, &began, began.Add(3*time.Second)
	code := 2
	ended.ExitCode, ended.Cause = &code, &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}
	u.event(task.Create, agent)
	u.event(task.Create, below)
	u.event(task.Fail, ended)
}

func golden(t *testing.T, got string) {
	t.Helper()
	file := filepath.Join("testdata", "frames", filepath.Base(t.Name())+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the frame is\n%s\nwant\n%s", got, want)
	}
}

// What others have written reaches the terminal as text only, wherever it stands.
func TestHostile(t *testing.T) {
	evil := "\x1b]0;owned\x07\x1b[2J\x1b[31mred\u202etxt.exe\r\u009b31m\x1bP+q\x1b\\\x7f\u2066"
	for _, width := range []int{60, 140} {
		u := start(t, width, 40, func(o *Options) { o.Folder = evil; o.Version = evil; o.History = []string{evil} })
		check := func(what string) {
			t.Helper()
			v := u.m.View()
			left := strings.ReplaceAll(sgr(v.Content), "\n", "")
			if i := strings.IndexFunc(left, dangerous); i >= 0 {
				t.Errorf("%s at %d: alive: %q", what, width, left[max(0, i-20):min(len(left), i+40)])
			}
			if strings.IndexFunc(v.WindowTitle, dangerous) >= 0 {
				t.Errorf("%s at %d: title alive: %q", what, width, v.WindowTitle)
			}
		}
		check("welcome")
		u.m.info.Title = evil
		u.hear(opened(), begin(evil), control.Piece{Kind: control.ThinkingPiece, Text: evil}, says(evil+"\n\n```"+evil+"\n"+evil+"\n```\n["+evil+"](x)"),
			called(evil, evil), result(evil, evil), called("Edit", `{"file_path":"f","old_string":"a","new_string":"b`+jsonEscape(evil)+`"}`),
			control.Piece{Kind: control.MailPiece, Text: evil}, control.Piece{Kind: control.NotePiece, Text: evil})
		r := u.command(task.ID(evil), true)
		r.Name, r.Description, r.Command, r.AgentType, r.Model = evil, evil, evil, evil, evil
		r.Progress = &task.Progress{Message: evil}
		u.event(task.Create, r)
		mate := r
		mate.ID, mate.Team = "t1", &task.Team{Team: evil}
		u.event(task.Create, mate)
		check("talk")
		u.press("alt+o")
		check("open")
		u.hear(control.Piece{Kind: control.EndPiece, Error: evil})
		check("end")
		u.tell(tea.PasteMsg{Content: evil})
		u.tell(tea.PasteMsg{Content: strings.Repeat(evil+"\n", 30)})
		check("paste")
		u.press("ctrl+c", "ctrl+r")
		u.types("o")
		check("search")
		u.press("esc", "shift+down")
		u.effect(func() tea.Cmd {
			return u.m.output(printed{id: "t1", to: panelScreen}, control.Chunk{Data: []byte(evil)}, nil)
		})
		check("panel")
		u.press("enter")
		check("zoom")
		u.press("esc", "esc", "ctrl+d")
		check("leave")
		u.press("esc")
		q := choiceQuestion()
		q.Input = json.RawMessage(strings.ReplaceAll(string(q.Input), "red", jsonEscape(evil)))
		u.ask(q)
		check("question")
		u.ask(task.Question{ID: "q3", Digest: "x", Agent: evil, Tool: evil, Reason: evil, Suggest: evil,
			Input: json.RawMessage(`{"command":"` + jsonEscape(evil) + `","` + jsonEscape(evil) + `":[1]}`)})
		check("permission")
		plan := planQuestion(t, task.ExitPlanMode, evil+"\n\n```"+evil+"\n"+evil+"\n```\n["+evil+"](x)")
		plan.ToolUseID = "t1"
		u.ask(plan)
		check("plan")
		u.press("s")
		check("source of the plan")
		u.ask(task.Question{ID: "q4", Digest: "x", Tool: "Bash", ToolUseID: "t1",
			Input: json.RawMessage(`{"command":"ls","` + jsonEscape(evil) + `":"x"}`)})
		u.press("tab", "tab")
		check("edit")
		u.press("enter")
		u.m.tell(evil + ": " + errorText(fmt.Errorf("%s", evil)))
		check("notification")
		u.tell(news{epoch: u.m.epoch, lost: fmt.Errorf("%s", evil)})
		check("lost")
		for _, c := range pageCommands() {
			u.m.screen, u.m.page = pageScreen, page{name: c.name}
			u.m.todos = todo.List{Items: []todo.Item{{ID: 1, Subject: evil, Status: todo.Status(evil), Owner: evil}}}
			u.m.pageRead(c.name)(pageFacts{hostileEnvironment(evil), []task.Record{r}, evil + "\n+" + evil}, nil)
			check(c.name)
			u.m.pageRead(c.name)(pageFacts{}, errors.New(evil))
			check(c.name + " failed")
		}
		u.m.screen, u.m.inbox.known = inboxScreen, true
		u.m.inbox.now = Waiting{control.Attention{Items: []control.AttentionItem{{ID: evil, Kind: "stalled", Session: "s9", Name: evil, What: evil,
			Why: evil, Answer: []string{"drover send " + evil}}}}, map[task.ID]control.Info{"s9": {Project: evil, Title: evil}}}
		u.m.chooseItem(0)
		check("inbox")
		u.m.screen, u.m.picker = pickerScreen, picking{list: []Conversation{{control.Info{Title: evil, Session: task.ID(evil), Project: evil, Live: true}, evil}}, menu: menu{query: evil}}
		check("picker")
	}
}

func jsonEscape(s string) string {
	b, _ := json.Marshal(strings.ToValidUTF8(s, ""))
	return strings.Trim(string(b), `"`)
}

// sgr takes out the sequences that set colours.
func sgr(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if strings.HasPrefix(s[i:], "\x1b[") {
			n := strings.IndexFunc(s[i+2:], func(r rune) bool { return !strings.ContainsRune("0123456789;:", r) })
			if n >= 0 && s[i+2+n] == 'm' {
				i += n + 3
				continue
			}
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

func dangerous(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

func (s *session) Info(context.Context) (control.Info, error) { return control.Info{}, nil }

func (s *session) Watch(context.Context, control.WatchRequest) iter.Seq2[control.Piece, error] {
	return func(func(control.Piece, error) bool) {}
}
