package agentsdk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Format is the format of the output.
type Format string

// The formats.
const (
	Text       Format = "text"        // the last turn's answer
	JSON       Format = "json"        // the last turn's result, as one object
	StreamJSON Format = "stream-json" // everything, one object a line
)

// Options configure a [Stream]. Out, Session, Since and NextCommit are required; the zero Format is Text.
type Options struct {
	Out     io.Writer // each line is one Write; a blocked Write blocks the agents
	Format  Format
	Partial bool      // stream-json: parts of replies
	Err     io.Writer // text and json: short lines about tasks; nil: none
	Warn    io.Writer // text and json: failures that are retried; nil: none
	Denied  io.Writer // a line for each kind of denied call; nil: none

	// Terminal says that Out is a terminal. Characters that a terminal interprets are then escaped in JSON.
	Terminal bool

	// The fields of system/init.
	Session        task.ID
	Cwd            string
	Model          string
	PermissionMode string // default: "default"
	Version        string
	Tools          []string
	Agents         []string
	Commands       []string // without the slash
	Skills         []string
	MCPServers     []MCPServer
	KeySource      string // of the provider, in the words of the wire; empty: none
	Effort         string // of the model; empty: the provider's default

	// States prints lines when the main agent starts to work and when it rests.
	States bool

	// Since returns durable task events after a number, oldest first, any number of them at once, or none. It does
	// not wait, and must not call the Stream.
	Since func(ctx context.Context, after task.Seq) ([]task.Event, error)
	// NextCommit returns a channel that is closed at the next event. Since has an event before its cause proceeds.
	NextCommit func() <-chan struct{}
	// Start is the number of the newest event before the stream.
	Start task.Seq
	// Live are the tasks that were alive at Start, in any order.
	Live []task.Record

	// Cost returns the cost of the session so far in US dollars, and whether all of it is known; nil: unknown. The
	// cost before the stream does not count as cost of this run.
	Cost func() (usd float64, known bool)
	// Price returns the cost of a call of a model in US dollars, and whether it is known; nil: unknown.
	Price func(model string, u agent.Usage) (usd float64, known bool)
	// Limits returns how many tokens a model can read, and write in one reply; 0 or nil: unknown.
	Limits func(model string) (window, output int64)
	// Answer returns the final text of an ended run of an agent; nil: none.
	Answer func(ctx context.Context, r task.Record) string
}

// Stream prints a session. Its methods may be called by several goroutines.
type Stream struct {
	o      Options
	broken chan struct{} // closed with the first error

	mu    sync.Mutex // held while a line is written: lines are whole and in order
	err   error      // the first
	last  task.Seq
	tasks map[task.ID]*entry // live runs
	due   []*entry           // foreground commands before their task_started, oldest first; some may have ended
	main  voice
	turn  turn
	turns int // results so far
	final *resultLine
	stats stats
	usage map[string]*modelUsage

	before float64 // cost of the session at the start

	denied map[string]bool // printed lines about denials

	queued, begun []string // prompts of the program that drives the session, by name
}

// New makes a stream. It does no I/O.
func New(o Options) *Stream {
	if o.Format == "" {
		o.Format = Text
	}
	if o.PermissionMode == "" {
		o.PermissionMode = "default"
	}
	s := &Stream{
		o: o, broken: make(chan struct{}), last: o.Start,
		tasks: map[task.ID]*entry{}, main: voice{model: o.Model},
		stats: stats{Killed: map[task.Reason]int{}, ByType: map[string]int{}},
		usage: map[string]*modelUsage{}, denied: map[string]bool{},
	}
	if o.Cost != nil {
		s.before, _ = o.Cost()
	}
	live := slices.Clone(o.Live)
	slices.SortStableFunc(live, func(a, b task.Record) int { return a.CreateTime.Compare(b.CreateTime) })
	for i, r := range live {
		if !s.hidden(r) && !r.Status.Terminal() {
			s.tasks[r.ID] = &entry{rec: r, order: task.Seq(i - len(live)), shown: true, voice: speaker(r)}
		}
	}
	return s
}

// Run prints task events until ctx ends. It returns the first error of Since or of a write, after which nothing more is
// printed. The log must stay open until Run has returned.
func (s *Stream) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		committed := s.o.NextCommit() // before looking, so that no event is missed
		wait := s.look()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.err
		case <-s.broken:
			return s.err // never changes once broken is closed
		case <-committed:
		case <-timer.C:
		}
	}
}

// look prints the events so far and returns the time until a command becomes due.
func (s *Stream) look() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pull()
	if len(s.due) > 0 {
		return time.Until(s.due[0].due)
	}
	return time.Hour
}

// Agent prints an event of the agent of a task, or of the main agent if from is the session. The events of one agent
// come one at a time.
func (s *Stream) Agent(from task.ID, e agent.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind != agent.PartEvent { // parts are frequent and follow from no task event
		s.pull()
	}
	if from == s.o.Session {
		s.onMain(e)
	} else if t := s.tasks[from]; t != nil {
		s.onSubagent(t, e)
	}
}

// Finish prints the last task events, and for text and json the answer. It is called once, after the last turn, and
// returns the first error of the stream, for example of a broken pipe.
func (s *Stream) Finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pull()
	if s.final == nil {
		return s.err
	}
	switch s.o.Format {
	case Text:
		if text := excerpt.Prose(s.final.answer); strings.TrimSpace(text) != "" {
			s.write([]byte(strings.TrimRight(text, "\n") + "\n"))
		} else if !s.final.IsError {
			s.note("the answer is empty")
		}
	case JSON:
		s.final.Stats = s.stats
		s.encode(s.final)
	}
	return s.err
}

// pull prints all task events so far. It uses no context of a caller: the events of a stop come after the stop has
// ended those.
func (s *Stream) pull() {
	ctx := context.Background()
	for s.err == nil {
		events, err := s.o.Since(ctx, s.last)
		if err != nil {
			s.fail(fmt.Errorf("read task events: %w", err))
			return
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			s.last = e.Seq
			s.onTask(ctx, e)
		}
	}
	s.overdue(time.Now())
}

// line prints one line of stream-json.
func (s *Stream) line(v any) {
	if s.o.Format == StreamJSON {
		s.encode(v)
	}
}

func (s *Stream) encode(v any) {
	b, err := encoded(v)
	if err != nil {
		s.fail(fmt.Errorf("encode %T: %w", v, err))
		return
	}
	if !utf8.Valid(b) { // raw input of a tool call
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	if s.o.Terminal {
		b = excerpt.JSON(b)
	}
	s.write(b)
}

func (s *Stream) write(b []byte) {
	if s.err != nil {
		return
	}
	if _, err := s.o.Out.Write(b); err != nil {
		s.fail(fmt.Errorf("print: %w", err))
	}
}

func (s *Stream) fail(err error) {
	if s.err == nil {
		s.err = err
		close(s.broken)
	}
}

// note prints a line for people, except with stream-json.
func (s *Stream) note(format string, args ...any) {
	if s.o.Err != nil && s.o.Format != StreamJSON {
		fmt.Fprintf(s.o.Err, format+"\n", args...)
	}
}

// warn prints a warning for people, except with stream-json.
func (s *Stream) warn(format string, args ...any) {
	if s.o.Warn != nil && s.o.Format != StreamJSON {
		fmt.Fprintf(s.o.Warn, "drover: "+format+"\n", args...)
	}
}

// maxDenied is how many different denials are printed.
const maxDenied = 50

// refusals prints denied calls and the rules that would allow them, each once.
func (s *Stream) refusals(list []agent.Denial) {
	if s.o.Denied == nil {
		return
	}
	for _, d := range list {
		line := Refusal(d)
		switch {
		case s.denied[line] || len(s.denied) > maxDenied:
			continue
		case len(s.denied) == maxDenied:
			line = "drover: more calls were denied: --output-format json lists them all"
		}
		s.denied[line] = true
		fmt.Fprintln(s.o.Denied, line)
	}
}

// Refusal is a line about a denied call, with the rule that would allow it.
func Refusal(d agent.Denial) string {
	why := strings.TrimPrefix(d.Reason, "this needs permission, and nobody is there to give it: ")
	how := ""
	if d.Suggest != "" {
		why = strings.TrimSuffix(why, " (allow with "+d.Suggest+")")
		how = " (allow it with --allowed-tools '" + strings.ReplaceAll(d.Suggest, "'", `'\''`) + "')"
	}
	if !strings.HasPrefix(why, "denied ") { // as in "denied by the rule"
		why = "denied: " + why
	}
	return fmt.Sprintf("drover: %s call %s%s", excerpt.Line(excerpt.Exact(d.Name), 100),
		excerpt.Line(excerpt.Exact(why), 500), excerpt.ExactLine(how))
}

func (s *Stream) stamp() stamp { return stamp{UUID: uuid.NewString(), Session: s.o.Session} }

// hidden reports whether a record is of a main agent, which is not a task for readers.
func (s *Stream) hidden(r task.Record) bool {
	return r.ID == s.o.Session || r.IsConversation()
}
