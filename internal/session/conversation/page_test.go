package conversation

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated page anew")

const page = "../../../docs/conversation.md"

// The page is made from Apply alone, so it cannot say what the code does not do.
func TestPage(t *testing.T) {
	want := renderPage()
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run `make docs`", page)
	}
}

// rows are the events of the table.
var rows = []struct {
	name   string
	waits  bool // a prompt does
	driven bool // a reminder of the autopilot is due
	event  Event
}{
	{name: "`offer`: a client sends a prompt", event: Event{Verb: Offer}},
	{name: "`accept`: the prompt is durable", event: Event{Verb: Accept, Prompt: Prompt{Seq: 9}}},
	{name: "`give_up`: the prompt could not be written", event: Event{Verb: GiveUp}},
	{name: "`take_back`: the prompt was withdrawn", waits: true, event: Event{Verb: TakeBack, Prompt: Prompt{Seq: 8}}},
	{name: "`look`: a prompt waits", waits: true, event: Event{Verb: Look}},
	{name: "`look`: a notification or message waits", event: Event{Verb: Look, Mail: true}},
	{name: "`look`: no task is running, and a reminder is due", driven: true, event: Event{Verb: Look, Alone: true}},
	{name: "`end_turn`: the turn succeeded", event: Event{Verb: EndTurn}},
	{name: "`end_turn`: the model failed", event: Event{Verb: EndTurn, Failure: ModelFailure}},
	{name: "`end_turn`: on autopilot, the model failed, and a retry may succeed", driven: true,
		event: Event{Verb: EndTurn, Failure: PassingFailure}},
	{name: "`end_turn`: the turn failed otherwise", event: Event{Verb: EndTurn, Failure: OtherFailure}},
	{name: "`move_turn`: the user moves the turn to the background", event: Event{Verb: MoveTurn}},
	{name: "`complete`: on autopilot, the agent marks its work as complete", driven: true, event: Event{Verb: Complete}},
	{name: "`set_mode`: the user ends the autopilot", driven: true, event: Event{Verb: SetMode}},
	{name: "`set_mode`: the user starts the autopilot", event: Event{Verb: SetMode, Most: 1}},
	{name: "`interrupt`: the user interrupts", event: Event{Verb: Interrupt}},
	{name: "`attach`: a client attaches", event: Event{Verb: Attach}},
	{name: "`detach`: the last client detaches", event: Event{Verb: Detach}},
	{name: "`ceiling`: commands still run at the wait ceiling and are stopped", event: Event{Verb: Ceiling}},
	{name: "`begin_run`: a run of the task begins", event: Event{Verb: BeginRun}},
	{name: "`retire`: the run has nothing left to do", event: Event{Verb: Retire}},
	{name: "`end_run`: the run ends", waits: true, event: Event{Verb: EndRun}},
	{name: "`close`: the session ends", event: Event{Verb: Close}},
}

// example is a prompt, an interruption, and the next prompt.
var example = []struct {
	text  string
	event Event
}{
	{"a client sends a prompt", Event{Verb: Offer}},
	{"the prompt is in the log", Event{Verb: Accept, Prompt: Prompt{Seq: 1}}},
	{"the prompt begins a turn", Event{Verb: Look}},
	{"the user interrupts", Event{Verb: Interrupt}},
	{"the turn ends", Event{Verb: EndTurn, Failure: Interruption}},
	{"a task has ended, and its notification waits", Event{Verb: Look, Mail: true}},
	{"a client sends a prompt", Event{Verb: Offer}},
	{"the prompt is in the log", Event{Verb: Accept, Prompt: Prompt{Seq: 2}}},
	{"the prompt begins a turn", Event{Verb: Look}},
}

func renderPage() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, `# The conversation with the main agent

This page is generated from `+"`conversation.Apply`"+` by a test of the package conversation.
Do not edit it; `+"`make docs`"+` writes it.

A conversation is a state machine: each event leads from one phase to another and may require an action. For example:

| event | what happens | phase after it | action |
|---|---|---|---|
`)
	s := State{Phase: Idle}
	for _, step := range example {
		next, effects, err := Apply(s, step.event)
		action := strings.Join(spoken(s, next, effects), ", ")
		if err != nil {
			action = "none: no turn begins"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", step.event.Verb, step.text, next.Phase, action)
		s = next
	}
	fmt.Fprint(&b, `
## Phases

| phase | prompts are accepted | a turn is running | when |
|---|---|---|---|
`)
	for _, p := range Phases() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p, yes(p.accepts()), yes(p.running()), phases[p])
	}
	fmt.Fprint(&b, `
A conversation that is a task has runs. A run ends in `+"`stopped`"+`, and the next prompt begins another run.

## Events

The table shows the phase after each event, and the actions. A dash means that the event is refused and changes nothing.

`)
	fmt.Fprint(&b, "| event |")
	for _, p := range Phases() {
		fmt.Fprintf(&b, " %s |", p)
	}
	fmt.Fprint(&b, "\n|---|", strings.Repeat("---|", len(Phases())), "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, p := range Phases() {
			s := State{Phase: p}
			if r.waits {
				s.Waiting = []Prompt{{Seq: 8}}
			}
			if r.driven {
				s.Unfinished, s.Most = true, 1
			}
			if r.event.Verb == Accept || r.event.Verb == GiveUp {
				s.Posting = 1
			}
			next, effects, err := Apply(s, r.event)
			if err != nil {
				fmt.Fprint(&b, " – |")
				continue
			}
			fmt.Fprintf(&b, " %s |", strings.Join(append([]string{string(next.Phase)}, spoken(s, next, effects)...), ", "))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, `
Every change wakes all who wait for the conversation.

## Holds

After a failure or an interruption no turn begins by itself: a hold prevents turns that the user does not start.
The next accepted prompt ends every hold. If two holds apply, the lower one in this table is in force.

| hold | reason | a prompt begins a turn | a notification or message does | a reminder does | waits for background work |
|---|---|---|---|---|---|
`)
	for _, h := range Holds() {
		fmt.Fprintf(&b, "| %s | %s |", h, holds[h])
		for _, e := range []Event{{}, {Mail: true}, {Alone: true}} {
			s := State{Phase: Idle, Hold: h}
			switch {
			case e.Alone:
				s.Unfinished, s.Most = true, 1
			case !e.Mail:
				s.Waiting = []Prompt{{Seq: 8}}
			}
			e.Verb = Look
			_, _, err := Apply(s, e)
			fmt.Fprintf(&b, " %s |", yes(err == nil))
		}
		fmt.Fprintf(&b, " %s |\n", yes(!State{Hold: h}.Leaves()))
	}
	fmt.Fprint(&b, "\nAfter a client has attached in a run, the conversation waits for background work with every hold.\n")
	return b.Bytes()
}

var phases = map[Phase]string{
	Idle:     "the conversation waits for a prompt, a notification or a message",
	Busy:     "the agent works",
	Stopping: "the run has ended, and its last turn is running",
	Stopped:  "the run has ended",
	Ending:   "the session ends, and the last turn is running",
	Ended:    "the session ends",
}

var holds = map[Hold]string{
	NoHold:        "–",
	ModelHold:     "the model failed",
	FailureHold:   "the turn failed otherwise",
	CeilingHold:   "commands were stopped at the wait ceiling",
	InterruptHold: "the user interrupted",
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// spoken is what an event does beside the phase.
func spoken(s, next State, effects []Effect) (out []string) {
	if next.Hold != s.Hold {
		out = append(out, "hold: "+next.Hold.String())
	}
	for _, e := range effects {
		switch e.(type) {
		case BeginTurn:
			out = append(out, "begin a turn")
		case CancelTurn:
			out = append(out, "cancel the turn")
		case Withdraw:
			out = append(out, "withdraw the prompt and refuse it")
		case Keep:
			out = append(out, "keep the waiting prompts and send them with the next one")
		}
	}
	return out
}
