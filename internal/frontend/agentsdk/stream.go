package agentsdk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Format is what is printed.
type Format string

// The formats.
const (
	Text       Format = "text"        // the last turn's answer
	JSON       Format = "json"        // the last turn's result, as one object
	StreamJSON Format = "stream-json" // everything, one object a line
)

// Options is what a [Stream] is made of. Out, Session, Since and Grown are
// required; the zero Format is Text.
type Options struct {
	Out     io.Writer // each line is one Write; a reader that does not read holds the agents up
	Format  Format
	Partial bool      // stream-json: replies as they come in
	Err     io.Writer // text and json: short lines about tasks; nil: none
	Warn    io.Writer // text and json: what has failed and is tried again; nil: nobody is told
	Denied  io.Writer // a line for each sort of call that was refused; nil: none

	// Terminal says that Out is one: what would be alive there is escaped in JSON,
	// and what the lines mean stays the same.
	Terminal bool

	// What system/init tells.
	Session        task.ID
	Cwd            string
	Model          string
	PermissionMode string // default: "default"
	Version        string
	Tools          []string
	Agents         []string
	Commands       []string // that a prompt may begin with, without the slash
	Skills         []string
	MCPServers     []MCPServer
	KeySource      string // where the key of the provider comes from, in the words of the wire; empty: none
	Effort         string // of the model; empty: the provider's default

	// States says that lines tell when the main agent begins to work and when it rests.
	States bool

	// Since returns durable task events after a number, oldest first, as many
	// as it likes at once, and none if there are none. It does not wait for
	// more, and must not call the Stream.
	Since func(ctx context.Context, after task.Seq) ([]task.Event, error)
	// Grown returns a channel that is closed at the next event. An event is
	// there for Since before whoever caused it goes on.
	Grown func() <-chan struct{}
	// Start is the number of the newest event that is not told.
	Start task.Seq
	// Live are the tasks that were alive at Start, in any order.
	Live []task.Record

	// Cost is what the session has cost so far, in US dollars, and whether that is
	// known of all that was used. nil: it is not known. What it is at the start is
	// no cost of this run.
	Cost func() (usd float64, known bool)
	// Price is what a call of a model has cost, in US dollars, and whether that is known.
	// nil: it is not known.
	Price func(model string, u agent.Usage) (usd float64, known bool)
	// Limits are how many tokens a model can read, and write in one reply; 0: not known.
	// nil: they are not known.
	Limits func(model string) (window, output int64)
	// Answer is the final text of an agent's run that has ended. nil: none.
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
	due   []*entry           // foreground commands not told of yet, oldest first; some may have ended
	main  voice
	turn  turn
	turns int // results so far
	final *resultLine
	stats stats
	usage map[string]*modelUsage

	before float64 // what the session had cost at the start

	denied map[string]bool // lines about refusals that were printed

	queued, begun []string // prompts of the program that drives the session, by its names
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
	live := slices.SortedStableFunc(
		slices.Values(o.Live),
		func(a, b task.Record) int { return a.CreateTime.Compare(b.CreateTime) },
	)
	for i, r := range live {
		if !s.hidden(r) && !r.Status.Terminal() {
			s.tasks[r.ID] = &entry{rec: r, order: task.Seq(i - len(live)), told: true, voice: speaker(r)}
		}
	}
	return s
}

// Run prints what tasks do, as it happens, until ctx ends. It returns at once
// with the first error of Since or of a write: then nobody reads any more, and
// nothing further is printed. The log must stay open until Run has returned.
func (s *Stream) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		grown := s.o.Grown() // before looking, so that nothing falls between
		wait := s.look()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.err
		case <-s.broken:
			return s.err // never changes once broken is closed
		case <-grown:
		case <-timer.C:
		}
	}
}

// look prints what there is and returns how long until something becomes due.
func (s *Stream) look() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pull()
	if len(s.due) > 0 {
		return time.Until(s.due[0].due)
	}
	return time.Hour
}

// Agent prints what happens in the conversation of the task, or of the main
// agent if from is the session. The events of one agent come one at a time.
func (s *Stream) Agent(from task.ID, e agent.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind != agent.PartEvent { // which can follow from no task event, and there are many of them
		s.pull()
	}
	if from == s.o.Session {
		s.onMain(e)
	} else if t := s.tasks[from]; t != nil {
		s.onSubagent(t, e)
	}
}

// Finish prints what is left: the last task events, and for text and json the
// answer. It is called once, after the last turn. It returns the first error
// that the stream met; a broken pipe is one.
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

// pull prints all task events there are. It uses no caller's context: what a
// stop did is told after the stop has ended everybody's.
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
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		s.fail(fmt.Errorf("encode %T: %w", v, err))
		return
	}
	b := buf.Bytes()
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

// note tells a person something, where lines of JSON do not.
func (s *Stream) note(format string, args ...any) {
	if s.o.Err != nil && s.o.Format != StreamJSON {
		fmt.Fprintf(s.o.Err, format+"\n", args...)
	}
}

// warn tells a person that something is wrong, where lines of JSON do not.
func (s *Stream) warn(format string, args ...any) {
	if s.o.Warn != nil && s.o.Format != StreamJSON {
		fmt.Fprintf(s.o.Warn, "drover: "+format+"\n", args...)
	}
}

// maxDenied is how many different refusals are told.
const maxDenied = 50

// refusals tells a person what was refused, and which rule would allow it: each
// only once.
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

// Refusal is a line about a call that was refused, with the rule that would allow it.
func Refusal(d agent.Denial) string {
	why := strings.TrimPrefix(d.Reason, "this needs permission, and nobody is there to give it: ")
	how := ""
	if d.Suggest != "" {
		why = strings.TrimSuffix(why, " (allow with "+d.Suggest+")")
		how = " (allow it with --allowed-tools " + quoted(d.Suggest) + ")"
	}
	if !strings.HasPrefix(why, "denied ") { // as in "denied by the rule"
		why = "denied: " + why
	}
	return fmt.Sprintf(
		"drover: %s call %s%s",
		excerpt.Line(excerpt.Exact(d.Name), 100),
		excerpt.Line(excerpt.Exact(why), 500),
		excerpt.ExactLine(how),
	)
}

// quoted is a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func (s *Stream) stamp() stamp { return stamp{UUID: newUUID(), Session: s.o.Session} }

// hidden reports records that are no task for a reader: that of the main agent.
func (s *Stream) hidden(r task.Record) bool {
	return r.ID == s.o.Session || r.IsConversation()
}
