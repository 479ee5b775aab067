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
	{name: "`offer`: a client has a prompt", event: Event{Verb: Offer}},
	{name: "`accept`: the prompt is durable", event: Event{Verb: Accept, Prompt: Prompt{Seq: 9}}},
	{name: "`give_up`: the prompt could not be written", event: Event{Verb: GiveUp}},
	{name: "`take_back`: the prompt was withdrawn", waits: true, event: Event{Verb: TakeBack, Prompt: Prompt{Seq: 8}}},
	{name: "`look`: a prompt waits", waits: true, event: Event{Verb: Look}},
	{name: "`look`: there is mail", event: Event{Verb: Look, Mail: true}},
	{name: "`look`: nothing is at work, a reminder is due", driven: true, event: Event{Verb: Look, Alone: true}},
	{name: "`end_turn`: the turn succeeded", event: Event{Verb: EndTurn}},
	{name: "`end_turn`: the model failed", event: Event{Verb: EndTurn, Failure: ModelFailure}},
	{name: "`end_turn`: it failed otherwise", event: Event{Verb: EndTurn, Failure: OtherFailure}},
	{name: "`move_turn`: the user moves the turn to the background", event: Event{Verb: MoveTurn}},
	{name: "`complete`: on autopilot, the work is marked as complete", driven: true, event: Event{Verb: Complete}},
	{name: "`set_mode`: the user ends the autopilot", driven: true, event: Event{Verb: SetMode}},
	{name: "`set_mode`: the user begins it", event: Event{Verb: SetMode, Most: 1}},
	{name: "`interrupt`: by the user", event: Event{Verb: Interrupt}},
	{name: "`attach`: a client is attached", event: Event{Verb: Attach}},
	{name: "`detach`: the last client has detached", event: Event{Verb: Detach}},
	{name: "`ceiling`: commands are stopped at the wait ceiling", event: Event{Verb: Ceiling}},
	{name: "`begin_run`: a run of the task begins", event: Event{Verb: BeginRun}},
	{name: "`retire`: the run has nothing left to do", event: Event{Verb: Retire}},
	{name: "`end_run`: the run ends", waits: true, event: Event{Verb: EndRun}},
	{name: "`close`: the session ends", event: Event{Verb: Close}},
}

func renderPage() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, `# The conversation with the main agent

Made from `+"`conversation.Apply`"+` by a test of package conversation; do not edit.
Write it anew with `+"`make docs`"+`.

A conversation is in one phase. In `+"`idle` and `busy`"+` prompts are accepted. The run of a conversation that is a task passes to
`+"`stopping` and `stopped`"+`, and the next prompt begins another; a session that ends passes to `+"`ending` and `ended`"+`. In `+"`busy`, `stopping` and `ending`"+`
a turn is running.

The table says where an event leads from each phase and what is done about it. A dash is an event that is refused and changes nothing.

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
Everybody who waits for the conversation is woken by every change.

## Holds

A failure and an interruption hold back what begins a turn without the user. The next prompt that is accepted ends every hold;
of two holds the lower one in this table counts.

| hold | a prompt begins a turn | mail | a reminder | background work is waited for |
|---|---|---|---|---|
`)
	for _, h := range Holds() {
		fmt.Fprintf(&b, "| %s |", h)
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
	fmt.Fprint(&b, "\nWhile a client is attached, background work is waited for in every row.\n")
	return b.Bytes()
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
			out = append(out, "begin the turn")
		case CancelTurn:
			out = append(out, "cancel the turn")
		case Withdraw:
			out = append(out, "withdraw the prompt and refuse it")
		case Keep:
			out = append(out, "keep waiting prompts for the next one")
		}
	}
	return out
}
