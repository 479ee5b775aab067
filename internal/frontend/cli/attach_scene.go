package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// scene is what somebody sees who is attached, apart from how it is drawn: what
// happens is put in, and what is new to be shown comes out. It does no I/O, and
// one goroutine uses it.
type scene struct {
	session task.ID
	only    task.ID // the one task that is looked at; empty: the whole session
	echoed  bool    // what the user types is on the screen already

	opened  bool            // the stream has said how far back it goes
	until   int64           // the last piece of what was before; 0: all that was is shown
	history []control.Piece // what was before, until all of it is there
	mark    control.Mark    // what was taken in

	busy      bool // the agent is in a turn
	awaited   bool // a prompt was taken while it was in none, and no turn has begun since
	breaks    bool // that turn is to be broken off as soon as it begins
	sent      []string
	questions []task.Question // that are open
	broken    time.Time       // when the user last broke off a turn
}

// showKind says what a [shown] is.
type showKind int

const (
	showText     showKind = iota // what an agent writes: a piece of text, lines not ended
	showPrompt                   // what somebody has asked
	showCall                     // a call of a tool
	showResult                   // and its result
	showTask                     // that a task has begun, ended or changed
	showNote                     // about the view, or what went wrong
	showQuestion                 // a question that waits for an answer
)

// shown is something to be shown. Its texts are as they came: making them harmless
// is left to whoever draws.
type shown struct {
	kind     showKind
	text     string
	tool     string
	task     task.Record
	verb     task.Verb
	question task.Question
}

// What is shown of a conversation that was there before: so many turns and pieces
// of it, from its end.
const (
	shownTurns  = 3
	shownPieces = 60
)

// piece takes in what happens in the conversation.
func (s *scene) piece(p control.Piece) []shown {
	if p.Kind == control.OpenPiece {
		if !s.opened { // else it is taken up again
			s.opened, s.until = true, p.N
		}
		return nil
	}
	s.mark = p.Mark()
	switch p.Kind {
	case control.BeginPiece:
		s.busy = true
		if s.until == 0 {
			s.awaited = false
		}
	case control.EndPiece:
		s.busy = false
	}
	if s.until == 0 {
		return s.present(p)
	}
	s.history = append(s.history, p)
	if p.N < s.until {
		return nil
	}
	return s.past()
}

// past shows the end of what was before.
func (s *scene) past() []shown {
	list := s.history
	s.history, s.until = nil, 0
	from, turns := len(list), 0
	for from > 0 && turns < shownTurns && len(list)-from < shownPieces {
		if from--; list[from].Kind == control.BeginPiece {
			turns++
		}
	}
	var out []shown
	if from > 0 {
		out = append(
			out,
			shown{
				kind: showNote,
				text: fmt.Sprintf("what was said before is left out here: see `drover logs --messages %s`", s.session),
			},
		)
	}
	for _, p := range list[from:] {
		out = append(out, s.present(p)...)
	}
	return out
}

// notification is how a letter begins that tells of the end of a task, which is
// shown as such.
const notification = "<task-notification"

func (s *scene) present(p control.Piece) []shown {
	switch p.Kind {
	case control.BeginPiece:
		if p.Text == "" || s.mine(p.Text) {
			return nil
		}
		return []shown{{kind: showPrompt, text: p.Text}}
	case control.TextPiece:
		return []shown{{kind: showText, text: p.Text}}
	case control.CallPiece:
		return []shown{{kind: showCall, tool: p.Tool, text: p.Text}}
	case control.ResultPiece:
		return []shown{{kind: showResult, tool: p.Tool, text: p.Text}}
	case control.NotePiece:
		return []shown{{kind: showNote, text: p.Text}}
	case control.MailPiece:
		if strings.HasPrefix(strings.TrimSpace(p.Text), notification) {
			return nil
		}
		return []shown{{kind: showNote, text: "mail: " + p.Text}}
	case control.GapPiece:
		return []shown{{kind: showNote, text: fmt.Sprintf("a part is left out here: see `drover logs --messages %s`",
			s.session)}}
	case control.TaskPiece:
		if p.Event != nil {
			return s.event(*p.Event)
		}
	case control.EndPiece:
		if p.Error != "" {
			return []shown{{kind: showNote, text: "the turn has ended: " + p.Error}}
		}
	}
	return nil
}

// mine reports whether a prompt was typed here, where it can be seen already.
func (s *scene) mine(prompt string) bool {
	i := slices.Index(s.sent, prompt)
	if i < 0 {
		return false
	}
	s.sent = slices.Delete(s.sent, i, i+1)
	return true
}

// event takes in what happens to a task: its begin and its end are shown, and what
// moves it in between. The main agent is what is talked to, and commands that its
// tools wait for are shown as calls.
func (s *scene) event(e task.Event) []shown {
	r := e.Task
	whole := s.only == ""
	switch {
	case !whole && r.ID != s.only:
		return nil
	case whole && (r.IsConversation() || r.Traits().Work == task.ByCommand && !r.Backgrounded):
		return nil
	}
	switch e.Verb {
	case task.Create, task.Resume, task.Background, task.Pause, task.Thaw, task.Park, task.Unpark:
	case task.Complete, task.Fail, task.Stop:
		if !whole {
			return nil // it is told behind the last of its output
		}
	case task.Rest, task.Wake, task.RequestStop:
		if whole {
			return nil
		}
	default:
		return nil
	}
	return []shown{{kind: showTask, task: r, verb: e.Verb}}
}

// asked takes in which questions are open now.
func (s *scene) asked(open []task.Question) []shown {
	var out []shown
	open = slices.DeleteFunc(slices.Clone(open), func(q task.Question) bool { return s.only != "" && q.Task != s.only })
	for _, q := range s.questions {
		if !holdsQuestion(open, q) {
			out = append(out, shown{kind: showNote, text: fmt.Sprintf("question %s waits no more", q.ID)})
		}
	}
	for _, q := range open {
		if !holdsQuestion(s.questions, q) {
			out = append(out, shown{kind: showQuestion, question: q})
		}
	}
	s.questions = open
	return out
}

// answered takes in that the user has answered a question.
func (s *scene) answered(q task.Question) {
	s.questions = slices.DeleteFunc(s.questions, func(x task.Question) bool { return x.ID == q.ID })
}

func holdsQuestion(list []task.Question, q task.Question) bool {
	return slices.ContainsFunc(list, func(x task.Question) bool { return x.ID == q.ID && x.Digest == q.Digest })
}

// deed is what the user wants done.
type deed struct {
	do       deedKind
	text     string        // a prompt, a message, or the task of a stop
	reply    task.Reply    // of an answer
	question task.Question // that it answers
	always   bool          // and the rule that it suggests is to hold
	why      string        // that nothing is done
}

type deedKind string

const (
	doNothing   deedKind = ""
	doSay       deedKind = "say"
	doTasks     deedKind = "tasks"
	doStop      deedKind = "stop"
	doAnswer    deedKind = "answer"
	doInterrupt deedKind = "interrupt"
	doDetach    deedKind = "detach"
	doHelp      deedKind = "help"
)

// attachHelp is what /help says.
const attachHelp = `A line is a prompt; one that ends in \ goes on in the next. Commands:
  /tasks                  what runs
  /stop ID                end a task with everything below it
  /allow [ID] [always]    allow a call that waits for permission; always: write the rule that is shown, too
  /deny [ID] [REASON]     deny it; the agent is told the reason
  /answer [ID] TEXT       answer a question, a form by a JSON object
  /interrupt              break off the turn, as Ctrl-C does
  /detach                 leave; the work goes on, as after Ctrl-D
  /NAME …                 any other is a command of the agent, such as /review or /compact: see drover commands
Without ID the only open question is meant.
`

// typed takes in a line that the user has typed.
func (s *scene) typed(line string) deed {
	text := strings.TrimSpace(line)
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "":
		return deed{}
	case "/tasks":
		return deed{do: doTasks}
	case "/stop":
		if rest = cmp.Or(rest, string(s.only)); rest == "" {
			return deed{why: "which task? give its ID, see /tasks"}
		}
		return deed{do: doStop, text: rest}
	case "/allow", "/deny", "/answer":
		return s.answers(word, rest)
	case "/interrupt":
		return deed{do: doInterrupt}
	case "/detach", "/quit", "/exit":
		return deed{do: doDetach}
	case "/help", "/?":
		return deed{do: doHelp}
	}
	if s.echoed && s.only == "" {
		s.sent = append(s.sent, text)
	}
	return deed{do: doSay, text: text}
}

// always is the word behind /allow that has the rule written.
const always = "always"

// answers reads an answer to the question that is meant.
func (s *scene) answers(word, rest string) deed {
	id, behind, _ := strings.Cut(rest, " ")
	named := slices.DeleteFunc(slices.Clone(s.questions),
		func(q task.Question) bool { return id == "" || !strings.HasPrefix(q.ID, id) })
	switch {
	case len(s.questions) == 0:
		return deed{why: "nothing waits for an answer"}
	case len(named) == 1:
		rest = strings.TrimSpace(behind)
	case len(named) > 1, len(s.questions) > 1:
		return deed{why: "several questions wait: give more of the ID of one"}
	default:
		named = s.questions
	}
	d := deed{do: doAnswer, question: named[0]}
	switch q := named[0]; {
	case word == "/deny":
		d.reply.Reason = rest
	case word == "/allow" && rest == always && q.Suggest == "":
		return deed{why: fmt.Sprintf("question %s: no rule would allow this call for good: allow it without %s", q.ID,
			always)}
	case word == "/allow" && rest == always:
		d.reply.Allow, d.always = true, true
	case word == "/allow" && rest != "":
		return deed{why: "no question " + rest + " is open, or it is more than an ID"}
	case word == "/allow":
		d.reply.Allow = true
	case q.Kind == task.Form:
		d.reply.Allow, d.reply.Input = true, []byte(rest)
	default:
		d.reply.Allow, d.reply.Text = true, rest
	}
	if err := d.question.Check(d.reply); err != nil {
		return deed{why: fmt.Sprintf("question %s: %v", d.question.ID, err)}
	}
	return d
}

// interruptTwice is how soon a second Ctrl-C means that the user wants to leave.
const interruptTwice = 2 * time.Second

// said takes in that a prompt was taken: a turn begins, of which the stream tells later.
func (s *scene) said() { s.awaited = !s.busy }

// interrupt takes in a Ctrl-C: it breaks off what is under way or about to begin, and
// leaves when nothing is or when it comes twice.
func (s *scene) interrupt(now time.Time) deed {
	if !s.busy && !s.awaited || !s.broken.IsZero() && now.Sub(s.broken) < interruptTwice {
		return deed{do: doDetach}
	}
	s.broken = now
	if !s.busy {
		s.breaks = true
		return deed{}
	}
	return deed{do: doInterrupt}
}

// begun is what the user wants done with a turn that has begun.
func (s *scene) begun() deed {
	if s.awaited || !s.breaks {
		return deed{}
	}
	s.breaks = false
	return deed{do: doInterrupt}
}
