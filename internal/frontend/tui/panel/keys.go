package panel

import (
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// Do is the sort of an [Action].
type Do int

// The actions.
const (
	Nothing Do = iota
	Leave      // the panel is closed
	Stop       // the task with everything below it
	Pause      // it, or let it go on
	Resume
	Background // move it there
	Send       // a message: the user is asked for it
	Open       // its conversation, or its output
	Retry      // a further run
	Follow     // the output of another task, which was chosen
)

// Action is an action on a task, for the caller to carry out.
type Action struct {
	Do   Do
	Task task.Record
}

// armedFor is how soon the key that stops must be pressed again.
const armedFor = 3 * time.Second

// Note shows the user a line in the panel, such as the result of a stop.
func (s *State) Note(text string) { s.note = text }

// Key takes in a key.
func (s *State) Key(key string, now time.Time) Action {
	rows := s.Rows(now)
	r, ok := s.Chosen(now)
	armed := s.armed
	if key != "x" {
		s.armed = ""
	}
	switch key {
	case "esc", "q", "shift+down", "ctrl+t":
		return Action{Do: Leave}
	case "up", "k", "ctrl+p":
		return s.move(rows, -1, now)
	case "down", "j", "ctrl+n":
		return s.move(rows, 1, now)
	case "pgup":
		return s.move(rows, -10, now)
	case "pgdown":
		return s.move(rows, 10, now)
	case "home", "g":
		return s.move(rows, -len(rows), now)
	case "end", "G":
		return s.move(rows, len(rows), now)
	case "a":
		s.All, s.stale = !s.All, true
		return Action{}
	}
	if !ok {
		return Action{}
	}
	live := !r.Status.Terminal()
	switch key {
	case "x":
		switch {
		case !live:
			s.note = fmt.Sprintf("%s has ended", r.ID)
		case armed == r.ID && now.Before(s.armedX):
			s.armed, s.note = "", fmt.Sprintf("stopping %s …", r.ID)
			return Action{Stop, r}
		default:
			s.armed, s.armedX, s.note = r.ID, now.Add(armedFor), ""
		}
	case "p":
		switch {
		case !live:
			s.note = fmt.Sprintf("%s has ended", r.ID)
		case r.Paused:
			return Action{Resume, r}
		default:
			return Action{Pause, r}
		}
	case "b":
		if live && !r.Backgrounded {
			return Action{Background, r}
		}
		s.note = fmt.Sprintf("%s is in the background already, or has ended", r.ID)
	case "s":
		if r.Kind.IsAgent() || r.TTY && live || r.Traits().Work == task.ByAgent {
			return Action{Send, r}
		}
		s.note = fmt.Sprintf("%s takes no messages: it is a %s without a terminal", r.ID, r.Traits().Noun)
	case "r":
		if !live && r.Traits().Resumable {
			return Action{Retry, r}
		}
		s.note = fmt.Sprintf("%s cannot be run again from here", r.ID)
	case "enter", "right", "l", "o":
		return Action{Open, r}
	}
	return Action{}
}

// move chooses another row.
func (s *State) move(rows []Row, step int, now time.Time) Action {
	if len(rows) == 0 {
		return Action{}
	}
	i := 0
	for k, r := range rows {
		if r.Record.ID == s.chosen {
			i = k
		}
	}
	i = min(max(0, i+step), len(rows)-1)
	s.choose(rows[i].Record.ID, now)
	s.note = ""
	return Action{Follow, rows[i].Record}
}

// Tail is the end of the output of a task.
type Tail struct {
	Task  task.ID
	Lines []string // printable
	Bytes int64
	open  bool // the last line has not ended
}

// maxTail bounds the lines that are kept.
const maxTail = 400

// Output adds printable output of the chosen task. With fresh, the text is
// all that is known of it.
func (s *State) Output(id task.ID, text string, fresh bool, size int64) {
	s.tail.Add(id, text, fresh, size)
}

// Add adds output; see [State.Output].
func (t *Tail) Add(id task.ID, text string, fresh bool, size int64) {
	if fresh || t.Task != id {
		*t = Tail{Task: id}
	}
	t.Bytes = size
	if text == "" {
		return
	}
	lines := strings.Split(text, "\n")
	if t.open && len(t.Lines) > 0 {
		t.Lines[len(t.Lines)-1] += lines[0]
		lines = lines[1:]
	}
	t.Lines = append(t.Lines, lines...)
	if t.open = !strings.HasSuffix(text, "\n"); !t.open && len(t.Lines) > 0 {
		t.Lines = t.Lines[:len(t.Lines)-1]
	}
	if n := len(t.Lines) - maxTail; n > 0 {
		t.Lines = append([]string(nil), t.Lines[n:]...)
	}
}
