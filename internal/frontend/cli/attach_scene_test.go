package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// drawn draws what a scene shows.
func drawn(t *testing.T, list []shown) string {
	t.Helper()
	var out bytes.Buffer
	c := newCanvas(&out, func() time.Time { return at(0) })
	if err := c.draw(list...); err != nil {
		t.Fatal(err)
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// What was said before comes at once and shortened, and what happens then as it
// comes; nothing comes twice.
func TestSceneHistory(t *testing.T) {
	s := scene{session: "s00000001"}
	var before []shown
	put := func(p control.Piece) { before = append(before, s.piece(p)...) }
	put(control.Piece{Kind: control.OpenPiece, N: 11})
	for i, text := range []string{"one", "two", "three", "four", "five"} {
		put(control.Piece{N: int64(2*i + 1), Kind: control.BeginPiece, Text: "ask " + text})
		if i == 4 {
			break
		}
		put(control.Piece{N: int64(2*i + 2), Kind: control.TextPiece, Text: "say " + text + "\n"})
	}
	put(control.Piece{N: 10, Kind: control.CallPiece, Tool: "Bash", Text: `{"command":"ls"}`})
	if len(before) != 0 {
		t.Fatalf("shown before all was there: %v", before)
	}
	put(control.Piece{N: 11, Kind: control.TextPiece, Text: "say fi"})
	want := "[what was said before is left out here: see `drover logs --messages s00000001`]\n" +
		"> ask three\nsay three\n> ask four\nsay four\n> ask five\n[Bash {\"command\":\"ls\"}]\nsay fi"
	if got := drawn(t, before); got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
	if !s.busy || s.mark != (control.Mark{N: 11, Len: 6}) {
		t.Errorf("busy %v, mark %v", s.busy, s.mark)
	}
	later := s.piece(control.Piece{N: 11, From: 6, Kind: control.TextPiece, Text: "ve\n"})
	later = append(later, s.piece(control.Piece{Kind: control.OpenPiece, N: 12})...) // the connection broke
	later = append(later, s.piece(control.Piece{N: 12, Kind: control.EndPiece, Error: "out of luck"})...)
	if got := drawn(t, later); got != "ve\n[the turn has ended: out of luck]\n" || s.busy {
		t.Errorf("shown %q, busy %v", got, s.busy)
	}
}

func TestSceneTyped(t *testing.T) {
	permission := task.Question{ID: "q11111111", Kind: task.Permission, Task: "a1", Digest: "d"}
	choice := task.Question{ID: "q22222222", Kind: task.Choice, Task: "a1", Digest: "d"}
	form := task.Question{ID: "q33333333", Kind: task.Form, Task: "a1", Digest: "d",
		Input: json.RawMessage(`{"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`)}
	for _, c := range []struct {
		line string
		open []task.Question
		want deed // of a question only its ID
		why  string
	}{
		{line: "  what changed?  ", want: deed{do: doSay, text: "what changed?"}},
		{line: "one\ntwo", want: deed{do: doSay, text: "one\ntwo"}},
		{line: " "},
		{line: "/compact the rest", want: deed{do: doSay, text: "/compact the rest"}},
		{line: "//etc is a folder", want: deed{do: doSay, text: "//etc is a folder"}},
		{line: "/review the diff", want: deed{do: doSay, text: "/review the diff"}},
		{line: "/tasks", want: deed{do: doTasks}},
		{line: "/stop b1", want: deed{do: doStop, text: "b1"}},
		{line: "/stop", why: "which task"},
		{line: "/help", want: deed{do: doHelp}},
		{line: "/interrupt", want: deed{do: doInterrupt}},
		{line: "/detach", want: deed{do: doDetach}},
		{line: "/allow", why: "nothing waits"},
		{line: "/allow", open: []task.Question{permission}, want: deed{do: doAnswer, question: permission, reply: task.Reply{Allow: true}}},
		{line: "/allow q1", open: []task.Question{permission, choice}, want: deed{do: doAnswer, question: permission, reply: task.Reply{Allow: true}}},
		{line: "/allow", open: []task.Question{permission, choice}, why: "several"},
		{line: "/allow q9", open: []task.Question{permission}, why: "no question q9"},
		{line: "/allow", open: []task.Question{choice}, why: "by a text"},
		{line: "/deny not today", open: []task.Question{permission}, want: deed{do: doAnswer, question: permission, reply: task.Reply{Reason: "not today"}}},
		{line: "/deny q2 not today", open: []task.Question{permission, choice}, want: deed{do: doAnswer, question: choice, reply: task.Reply{Reason: "not today"}}},
		{line: "/answer blue, and dark", open: []task.Question{choice}, want: deed{do: doAnswer, question: choice, reply: task.Reply{Allow: true, Text: "blue, and dark"}}},
		{line: "/answer q2 blue", open: []task.Question{choice, form}, want: deed{do: doAnswer, question: choice, reply: task.Reply{Allow: true, Text: "blue"}}},
		{line: `/answer {"n":1}`, open: []task.Question{form}, want: deed{do: doAnswer, question: form, reply: task.Reply{Allow: true, Input: json.RawMessage(`{"n":1}`)}}},
		{line: `/answer {"n":"x"}`, open: []task.Question{form}, why: "does not answer"},
		{line: "/answer it", open: []task.Question{permission}, why: "allowed or denied"},
	} {
		t.Run(c.line, func(t *testing.T) {
			s := scene{}
			s.asked(c.open)
			got := s.typed(c.line)
			if c.why != "" {
				if got.do != doNothing || !strings.Contains(got.why, c.why) {
					t.Errorf("done %q, why %q; want %q", got.do, got.why, c.why)
				}
				return
			}
			if got.why != "" || got.do != c.want.do || got.text != c.want.text || got.question.ID != c.want.question.ID ||
				got.reply.Allow != c.want.reply.Allow || got.reply.Text != c.want.reply.Text || got.reply.Reason != c.want.reply.Reason ||
				string(got.reply.Input) != string(c.want.reply.Input) {
				t.Errorf("deed %+v, want %+v", got, c.want)
			}
		})
	}
}

// What the user types is on the screen already, once; the same words of somebody
// else are shown.
func TestSceneEcho(t *testing.T) {
	for _, c := range []struct {
		name   string
		echoed bool
		want   string
	}{{"terminal", true, "> go\n"}, {"piped", false, "> go\n> go\n"}} {
		t.Run(c.name, func(t *testing.T) {
			s := scene{echoed: c.echoed}
			s.typed("go")
			list := s.piece(control.Piece{N: 1, Kind: control.BeginPiece, Text: "go"})
			list = append(list, s.piece(control.Piece{N: 2, Kind: control.BeginPiece, Text: "go"})...)
			if got := drawn(t, list); got != c.want {
				t.Errorf("shown %q, want %q", got, c.want)
			}
		})
	}
}

func TestSceneInterrupt(t *testing.T) {
	s := scene{}
	if d := s.interrupt(at(0)); d.do != doDetach {
		t.Errorf("idle: %q", d.do)
	}
	s.piece(control.Piece{N: 1, Kind: control.BeginPiece})
	for _, c := range []struct {
		at   int
		want deedKind
	}{{10, doInterrupt}, {13, doInterrupt}, {14, doDetach}} {
		if d := s.interrupt(at(c.at)); d.do != c.want {
			t.Errorf("at %d s: %q, want %q", c.at, d.do, c.want)
		}
	}
}

// Ctrl-C right after a prompt, before the stream tells of the turn, breaks that turn off:
// once, and not one of before that is shown meanwhile.
func TestSceneInterruptsWhatBegins(t *testing.T) {
	s := scene{opened: true, until: 2}
	s.said()
	if d := s.interrupt(at(10)); d.do != doNothing {
		t.Errorf("before it has begun: %q", d.do)
	}
	for i, p := range []control.Piece{{Kind: control.BeginPiece}, {Kind: control.EndPiece}, {Kind: control.BeginPiece}, {Kind: control.TextPiece}, {Kind: control.EndPiece}, {Kind: control.BeginPiece}} {
		p.N = int64(i + 1)
		s.piece(p)
		want := doNothing
		if i == 2 {
			want = doInterrupt
		}
		if d := s.begun(); d.do != want {
			t.Errorf("at piece %d: %q, want %q", p.N, d.do, want)
		}
	}
	s = scene{}
	s.said()
	s.interrupt(at(10))
	if d := s.interrupt(at(11)); d.do != doDetach {
		t.Errorf("twice: %q", d.do)
	}
}

func TestSceneTasks(t *testing.T) {
	command := task.Record{ID: "b1", Kind: task.LocalBash, Name: "build", Command: "make", Backgrounded: true}
	ended := command
	ended.Status, ended.StartTime, ended.EndTime, ended.ExitCode = task.Failed, when(0), when(3), ptr(2)
	ended.Cause = &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}
	agent := task.Record{ID: "a1", Kind: task.LocalAgent, Prompt: "look"}
	for _, c := range []struct {
		name string
		only task.ID
		e    task.Event
		want string
	}{
		{"begin", "", task.Event{Verb: task.Create, Task: command}, "[b1 build started: command make]\n"},
		{"end", "", task.Event{Verb: task.Fail, Task: ended}, "[b1 build failed after 3.0s: 2]\n"},
		{"agent", "", task.Event{Verb: task.Create, Task: agent}, "[a1 started: agent look]\n"},
		{"agent-rests", "", task.Event{Verb: task.Rest, Task: agent}, ""},
		{"agent-rests-looked-at", "a1", task.Event{Verb: task.Rest, Task: agent}, "[a1 waits for a message]\n"},
		{"other", "a1", task.Event{Verb: task.Create, Task: command}, ""},
		{"main", "", task.Event{Verb: task.Create, Task: task.Record{ID: "s1", Kind: task.LocalAgent, AgentType: task.MainSession}}, ""},
		{"call", "", task.Event{Verb: task.Create, Task: task.Record{ID: "b2", Kind: task.LocalBash}}, ""},
		{"progress", "", task.Event{Verb: task.Report, Task: command}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scene{only: c.only}
			if got := drawn(t, s.event(c.e)); got != c.want {
				t.Errorf("shown %q, want %q", got, c.want)
			}
		})
	}
}

func TestSceneQuestions(t *testing.T) {
	q := task.Question{ID: "q1", Task: "a1", Tool: "Bash", Digest: "d1"}
	other := q
	other.ID, other.Task = "q2", "a2"
	changed := q
	changed.Digest = "d2"
	s := scene{}
	for _, c := range []struct {
		open []task.Question
		want []showKind
	}{
		{[]task.Question{q}, []showKind{showQuestion}},
		{[]task.Question{q, other}, []showKind{showQuestion}},
		{[]task.Question{changed, other}, []showKind{showNote, showQuestion}},
		{[]task.Question{other}, []showKind{showNote}},
	} {
		var got []showKind
		for _, x := range s.asked(c.open) {
			got = append(got, x.kind)
		}
		if len(got) != len(c.want) {
			t.Fatalf("shown %v, want %v", got, c.want)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("shown %v, want %v", got, c.want)
			}
		}
	}
	one := scene{only: "a1"}
	if got := one.asked([]task.Question{q, other}); len(got) != 1 || got[0].question.ID != "q1" {
		t.Errorf("one task: %v", got)
	}
}

// Nothing that anybody has written is alive on the screen, wherever it stands and
// however it is cut into pieces.
func TestSceneHarmless(t *testing.T) {
	evil := "\x1b]0;title\x07\x1b[2J\u202Etxt\r\u009b31m"
	s := scene{}
	var list []shown
	n := int64(0)
	put := func(p control.Piece) { n++; p.N = n; list = append(list, s.piece(p)...) }
	for _, r := range evil {
		put(control.Piece{Kind: control.TextPiece, Text: string(r)})
	}
	put(control.Piece{Kind: control.BeginPiece, Text: evil})
	put(control.Piece{Kind: control.CallPiece, Tool: evil, Text: evil})
	put(control.Piece{Kind: control.ResultPiece, Tool: evil, Text: evil + "\n" + evil})
	put(control.Piece{Kind: control.NotePiece, Text: evil})
	put(control.Piece{Kind: control.MailPiece, Text: evil})
	put(control.Piece{Kind: control.EndPiece, Error: evil})
	r := task.Record{ID: task.ID(evil), Name: evil, Command: evil, Backgrounded: true, Kind: task.Kind(evil), Cause: &task.Cause{Reason: task.Reason(evil)}}
	for _, v := range []task.Verb{task.Create, task.Fail, task.Pause} {
		list = append(list, s.event(task.Event{Verb: v, Task: r})...)
	}
	raw, err := json.Marshal(map[string]string{"command": evil})
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, s.asked([]task.Question{{ID: evil, Task: task.ID(evil), Agent: evil, Tool: evil, Reason: evil, Input: raw}})...)
	if got := drawn(t, list); strings.ContainsAny(got, "\x1b\x07\r\u202E\u009b") {
		t.Errorf("alive: %q", got)
	}
}
