package tui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// The row of an agent tells its tokens, how often it has called tools and what it did
// lately; that of a command the last lines of its output.
func TestPanelFacts(t *testing.T) {
	u := start(t, 110, 30)
	u.talk()
	u.team()
	r, _ := u.m.tasks.Record("a1")
	r.Progress = &task.Progress{TokenCount: 4321, ToolUseCount: 7, RecentActivities: []task.Activity{
		{ToolName: "Grep", Input: json.RawMessage(`{"pattern":"func parse"}`)}, {ToolName: "Read", Input: json.RawMessage(`{"file_path":"parse.go"}`)}}}
	u.event(task.Report, r)
	u.press("shift+down")
	u.sees("output of b1")
	u.press("down")
	u.sees("4.3k tokens", "7 tool uses", "lately: Read parse.go, Grep func parse")
	u.press("up")
	u.effect(func() tea.Cmd {
		return u.m.output(printed{id: "b1", to: panelScreen, fresh: true},
			control.Chunk{Data: []byte("line 98\nline 99\nline 100\n"), Ended: true}, nil)
	})
	u.sees("line 98", "line 99", "line 100")
	u.misses("tokens · 7")
}

// The conversation of an agent stays where it was scrolled to, with what was opened, when
// the agent begins a further run. Of one that has ended it is read once.
func TestZoomKeeps(t *testing.T) {
	u := start(t, 80, 20)
	u.talk()
	var said []control.Message
	for i := range 40 {
		said = append(said, control.Message{Role: "assistant", Parts: []control.Part{{Type: "text", Text: fmt.Sprintf("answer %d", i)}}})
	}
	u.api.said = said
	u.team()
	r, _ := u.m.tasks.Record("a1")
	end := u.at
	r.Status, r.EndTime = task.Completed, &end
	u.event(task.Complete, r)
	u.press("shift+down", "down", "enter")
	u.sees("answer 39")
	u.press("pgup")
	u.sees("answer 30")
	u.misses("answer 39")
	reads := u.api.reads
	for range 5 {
		u.pass(time.Second)
	}
	if reads != 1 || u.api.reads != 1 {
		t.Errorf("the conversation of an agent that has ended was read %d times", u.api.reads)
	}
	r.Status, r.EndTime, r.Run = task.Running, nil, "run2"
	u.api.said = append(said, control.Message{Role: "user", Parts: []control.Part{{Type: "text", Text: "go on"}}})
	u.event(task.Resume, r)
	u.sees("answer 30", "running")
	u.misses("answer 39")
	u.press("ctrl+end")
	u.sees("answer 39", "> go on")
}

// In the conversation of an agent, too, a call that failed says why.
func TestZoomFailed(t *testing.T) {
	u := start(t, 90, 24)
	u.talk()
	u.team()
	u.api.said = []control.Message{{Role: "assistant", Parts: []control.Part{{Type: "tool_use", Tool: "Bash", Text: `{"command":"make"}`}}},
		{Role: "user", Parts: []control.Part{{Type: "tool_result", Text: "no rule\n\nExit code 2", Error: "Exit code 2"}}}}
	u.press("shift+down", "down", "enter")
	u.sees("✗ Bash make", "└ Exit code 2")
}

// A dream is counted, stands among the tasks, and its conversation can be opened.
func TestDreamDialog(t *testing.T) {
	u := start(t, 90, 24)
	u.hear(opened())
	began := u.at
	u.event(task.Create, task.Record{ID: "d1", Kind: task.Dream, Status: task.Running, Description: "Consolidate what was learnt", Backgrounded: true,
		CreateTime: began, StartTime: &began, Progress: &task.Progress{Phase: "reading"}})
	u.sees("dreaming · Shift+Down")
	u.press("shift+down")
	u.sees("Consolidate what was learnt", "● running")
	u.press("enter")
	u.sees("output of d1", "esc back")
}

// A plan of remote work that waits is said at the bottom, and down shows it.
func TestPlanPill(t *testing.T) {
	u := start(t, 90, 24)
	u.hear(opened())
	began := u.at
	plan := func(phase string) task.Record {
		return task.Record{ID: "r1", Kind: task.RemoteAgent, Status: task.Running, Description: "Plan the move", Backgrounded: true, CreateTime: began,
			StartTime: &began, Progress: &task.Progress{Phase: phase, Remote: &task.RemoteSession{Type: "ultraplan"}}}
	}
	u.event(task.Create, plan(""))
	u.sees("◇ 1 cloud session · Shift+Down")
	u.press("down")
	u.misses("Plan the move  ")
	u.event(task.Report, plan("needs_input"))
	u.sees("◇ ultraplan needs your input · ↓ to view")
	u.event(task.Report, plan("plan_ready"))
	u.sees("◆ ultraplan ready · ↓ to view")
	u.press("down")
	u.sees("Tasks · 1 running", "Plan the move")
}

// On a narrow terminal what runs is said in full, and the rest makes room for it.
func TestNarrow(t *testing.T) {
	for width, want := range map[int]string{30: "3 shells, 2 monitors\n", 40: "3 shells, 2 monitors · Shift+Down", 60: "3 shells, 2 monitors · Shift+Down"} {
		u := start(t, width, 12)
		u.talk()
		u.m.tasks.Event(task.Event{Verb: task.Create, Task: u.command("b2", true)}, u.at)
		u.m.tasks.Event(task.Event{Verb: task.Create, Task: u.command("b3", true)}, u.at)
		for _, id := range []task.ID{"m1", "m2"} {
			r := u.command(id, true)
			r.Kind = task.MonitorMCP
			u.m.tasks.Event(task.Event{Verb: task.Create, Task: r}, u.at)
		}
		u.sees(want)
	}
}

// Ctrl+B moves all that the agent waits for, and not what runs below an agent; another key
// may do the same.
func TestBackgroundAll(t *testing.T) {
	u := start(t, 80, 24, func(o *Options) {
		o.Keys, o.HintAfter = map[string]string{"background": "ctrl+q"}, 5*time.Second
	})
	u.hear(opened(), begin("go"))
	u.event(task.Create, u.command("b1", false))
	u.at = u.at.Add(time.Second)
	agent := u.command("a1", false)
	agent.Kind = task.LocalAgent
	u.event(task.Create, agent)
	below := u.command("b2", false)
	below.Parent = "a1"
	u.event(task.Create, below)
	u.pass(4 * time.Second)
	u.misses("to the background")
	u.pass(2 * time.Second)
	u.sees("ctrl+q: to the background")
	u.press("ctrl+b")
	u.did("")
	u.press("ctrl+q")
	u.did("promote b1\npromote a1")
	u.sees("in the background now: b1, a1")
}

// A wrong name in the setting of keys is said.
func TestKeysUnknown(t *testing.T) {
	u := start(t, 80, 24, func(o *Options) { o.Keys = map[string]string{"dance": "ctrl+q"} })
	u.sees("terminal.keys: nothing is called dance")
}

// Ctrl+C interrupts the turn first; the second leaves, and says what still runs.
func TestInterruptThenLeave(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened(), begin("go"))
	u.event(task.Create, u.command("b1", true))
	u.press("ctrl+c")
	u.did("interrupt s12345678")
	u.sees("ctrl+c again leaves")
	u.hear(control.Piece{Kind: control.EndPiece, Error: "interrupted"})
	u.press("ctrl+c")
	u.sees("Leave? These tasks are running:", "Run the tests", "1. Leave them running", "2. Stop them", "3. Stay")
	u.did("")
}

// In autopilot the end of a turn calls nobody; that all is done does, and so do an error,
// an abort, and a session that has become idle without.
func TestAutopilotSignals(t *testing.T) {
	u := start(t, 80, 24)
	u.hear(opened())
	u.m.away = true
	state := func(s control.State) string {
		s.Settings = &control.Settings{Model: "opus", Mode: "default", SessionMode: "autopilot"}
		return called1(u.m.hear(news{epoch: u.m.epoch, state: &s}))
	}
	piece := func(p control.Piece) string {
		u.n++
		p.N, p.At = u.n, u.at
		return called1(u.m.hear(news{epoch: u.m.epoch, pieces: []control.Piece{p}}))
	}
	state(control.State{Version: 1})
	piece(begin("go"))
	if got := piece(end()); got != "" {
		t.Errorf("the end of a turn calls: %q", got)
	}
	piece(begin(""))
	if got := piece(control.Piece{Kind: control.EndPiece, Error: "the model refused"}); !strings.Contains(got, "stopped") {
		t.Errorf("an error calls: %q", got)
	}
	u.sees("The turn failed: the model refused")
	if got := state(control.State{Idle: true, Version: 2}); !strings.Contains(got, "idle") {
		t.Errorf("becoming idle calls: %q", got)
	}
	if got := state(control.State{Idle: true, Version: 3, Completed: &control.Completion{N: 1, Summary: "all of it", Success: true}}); !strings.Contains(got, "done") {
		t.Errorf("that all is done calls: %q", got)
	}
}

// The keys of one command: stop is asked for twice, and esc goes back to the list.
func TestOneCommand(t *testing.T) {
	u := start(t, 90, 24)
	u.talk()
	u.press("shift+down", "enter")
	u.sees("output of b1", "esc back")
	u.press("ctrl+x")
	u.sees("press ctrl+x again to stop it")
	u.did("")
	u.press("ctrl+x")
	u.did("stop b1")
	u.press("esc")
	u.sees("Tasks · 1 running")
}

// called1 is what of a command calls somebody; empty: nothing does.
func called1(cmd tea.Cmd) (text string) {
	if cmd == nil {
		return ""
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			text += called1(c)
		}
	case tea.RawMsg:
		text = fmt.Sprint(msg.Msg)
	}
	return text
}
