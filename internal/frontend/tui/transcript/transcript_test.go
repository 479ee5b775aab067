package transcript

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/theme"
	"github.com/drover-dev/drover/task"
)

func feed(s *State, pieces ...control.Piece) {
	for i, p := range pieces {
		if p.N == 0 {
			p.N = int64(i + 1)
		}
		s.Apply(p)
	}
}

func kinds(s *State) string {
	var list []string
	for _, b := range s.Blocks {
		list = append(list, fmt.Sprintf("%d:%s%s%s", b.Kind, b.Text, b.Tool, b.Result))
	}
	return strings.Join(list, " ")
}

// Pieces become blocks: texts grow, results find their calls, a turn that ends settles
// what is left open, and what the program says to itself is not shown.
func TestFold(t *testing.T) {
	s := &State{}
	feed(s,
		control.Piece{Kind: control.OpenPiece}, control.Piece{Kind: control.BeginPiece, Text: "go"},
		control.Piece{Kind: control.TextPiece, Text: "a"}, control.Piece{Kind: control.TextPiece, Text: "b", From: 1, N: 3},
		control.Piece{Kind: control.CallPiece, Tool: "Bash", Call: "1"}, control.Piece{Kind: control.CallPiece, Tool: "Bash", Call: "2"},
		control.Piece{Kind: control.ResultPiece, Tool: "Bash", Call: "2", Text: "second"},
		control.Piece{Kind: control.MailPiece, Text: "<task-notification>x"}, control.Piece{Kind: control.CallPiece, Tool: "task_complete", Call: "3"},
		control.Piece{Kind: control.ResultPiece, Tool: "task_complete", Call: "3", Text: "fine"},
		control.Piece{Kind: control.EndPiece, Error: "cut"})
	if got, want := kinds(s), "0:go 1:ab 3:Bashinterrupted 3:Bashsecond 8:fine 7:cut"; got != want {
		t.Errorf("blocks %s, want %s", got, want)
	}
	if s.Busy {
		t.Error("the turn goes on")
	}
}

func TestCompletion(t *testing.T) {
	s := &State{}
	done := func(summary, refused string) []control.Piece {
		return []control.Piece{{Kind: control.CallPiece, Tool: "task_complete", Call: "1", Text: `{"summary":"` + summary + `"}`},
			{Kind: control.ResultPiece, Tool: "task_complete", Call: "1", Error: refused}}
	}
	feed(s, append(done("not yet", "a hook refused it"), done("all done", "")...)...)
	d := NewDrawer(theme.New())
	if got := ansi.Strip(strings.Join(d.Lines(&s.Blocks[0], 40), "\n")); got != "✓ Task complete\n  all done" || len(s.Blocks) != 1 {
		t.Errorf("%d blocks, %q", len(s.Blocks), got)
	}
}

// Who attaches in the middle sees what who was there from the beginning sees: an answer stays in one block around
// the end of a task, and answers of two turns stay apart.
func TestSameForAll(t *testing.T) {
	ended := task.Event{Verb: task.Complete, Task: task.Record{ID: "b1", Kind: task.LocalBash, Backgrounded: true, Status: task.Completed}}
	notice := control.Piece{Kind: control.TaskPiece, N: 3, Event: &ended}
	second := []control.Piece{{Kind: control.EndPiece, N: 4, Running: 1}, {Kind: control.BeginPiece, N: 5},
		{Kind: control.TextPiece, N: 6, Text: "two"}, {Kind: control.EndPiece, N: 7}}
	live, after := &State{}, &State{}
	feed(live, append([]control.Piece{{Kind: control.BeginPiece, N: 1, Text: "go"}, {Kind: control.TextPiece, N: 2, Text: "on"}, notice,
		{Kind: control.TextPiece, N: 2, From: 2, Text: "e"}}, second...)...)
	feed(after, append([]control.Piece{{Kind: control.BeginPiece, N: 1, Text: "go"}, {Kind: control.TextPiece, N: 2, Text: "one"}, notice}, second...)...)
	if got, want := kinds(live), "0:go 1:one 6: 10: 1:two"; got != want || kinds(after) != want {
		t.Errorf("from the beginning %s\nlater %s\nwant %s", got, kinds(after), want)
	}
}

// What is written is bounded, and the newest stays.
func TestBounded(t *testing.T) {
	s := &State{}
	for i := range 3 * maxBlocks {
		s.Tell(fmt.Sprint(i), time.Time{})
	}
	if n := len(s.Blocks); n > 2*maxBlocks || s.Blocks[n-1].Text != fmt.Sprint(3*maxBlocks-1) {
		t.Errorf("%d blocks, the last %q", n, s.Blocks[n-1].Text)
	}
	if i := s.index(s.Blocks[5].ID); i != 5 {
		t.Errorf("index %d", i)
	}
}

// Output is cut into blocks and stays what it was, however it comes.
func TestPrint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := &State{}, ""
		for range rapid.IntRange(1, 30).Draw(t, "parts") {
			part := strings.Repeat(rapid.SampledFrom([]string{"x", "line\n", "\n"}).Draw(t, "text"), rapid.IntRange(0, 90).Draw(t, "times"))
			s.Print(part, time.Time{})
			all += part
		}
		got := ""
		for _, b := range s.Blocks {
			got += b.Text
			if strings.Count(b.Text, "\n") > outputLines {
				t.Fatalf("a block has %d lines", strings.Count(b.Text, "\n"))
			}
		}
		if got != all {
			t.Fatalf("%q became %q", all, got)
		}
	})
}

// The window shows what lies below each other, wherever it is scrolled to, and comes back
// to the end.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, d, w := &State{}, NewDrawer(theme.New()), &Window{}
		for i := range rapid.IntRange(1, 30).Draw(t, "blocks") {
			s.Tell(strings.Repeat(fmt.Sprintf("n%d ", i), rapid.IntRange(1, 60).Draw(t, "words")), time.Time{})
		}
		width, height := rapid.IntRange(20, 80).Draw(t, "width"), rapid.IntRange(1, 30).Draw(t, "height")
		var all []Row
		for i := range s.Blocks {
			gap, lines := s.lines(d, i, width)
			if gap > 0 {
				all = append(all, Row{})
			}
			for _, line := range lines {
				all = append(all, Row{line, s.Blocks[i].ID})
			}
		}
		at := max(0, len(all)-height)
		for range rapid.IntRange(0, 20).Draw(t, "scrolls") {
			n := rapid.IntRange(-40, 40).Draw(t, "by")
			w.Scroll(s, d, width, height, n)
			at = min(max(0, at+n), max(0, len(all)-height))
			got := w.Rows(s, d, width, height)
			want := all[at:min(len(all), at+height)]
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("by %d to %d:\n%v\nwant\n%v", n, at, got, want)
			}
		}
	})
}

// A result that says where a task runs is for the model: people see that it began, and the
// rest when they open the call.
func TestStartedTask(t *testing.T) {
	s := &State{}
	feed(s,
		control.Piece{Kind: control.CallPiece, Tool: "Bash", Call: "1", Text: `{"command":"make"}`},
		control.Piece{Kind: control.ResultPiece, Tool: "Bash", Call: "1", Text: "Background task started.\nTask ID: b1\nOutput file: /o\nMore"})
	d := NewDrawer(theme.New())
	if got := ansi.Strip(strings.Join(d.Lines(&s.Blocks[0], 40), "\n")); got != "● Bash make\n  └ Background task started." {
		t.Errorf("folded: %q", got)
	}
	s.OpenAll()
	if got := ansi.Strip(strings.Join(d.Lines(&s.Blocks[0], 40), "\n")); !strings.Contains(got, "Task ID: b1") {
		t.Errorf("open: %q", got)
	}
}

// Numbers of lines stand below each other: blanks that all lines begin with go, others stay.
func TestFlushLeft(t *testing.T) {
	for in, want := range map[string]string{
		"     1  a\n     2\n    10  b\n": " 1  a\n 2\n10  b",
		"\n\n  x\n\n    y\n \n":          "x\n\n  y",
		"":                               "", " \n": "", "a\n  b": "a\n  b",
	} {
		if got := flushLeft(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
