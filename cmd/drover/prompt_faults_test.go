package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

// faultsAtOnce is how many faults one run of the program meets, one call after the
// other: each has a pause of half a second.
const faultsAtOnce = 12

// TestFaults lets each fault of a provider happen to the built program, while
// commands and agents run in the background.
func TestFaults(t *testing.T) {
	bin := build(t)
	table := modeltest.Faults(modeltest.Messages, halfAnswer("x"))
	var fixed, fatal []modeltest.Fault
	for _, f := range table {
		switch {
		case f.Again:
			fixed = append(fixed, f)
		case f.Kind != "":
			fatal = append(fatal, f)
		}
	}
	if len(table) < 40 {
		t.Errorf("%d faults", len(table))
	}
	slices.SortFunc(fixed, func(a, b modeltest.Fault) int { return strings.Compare(a.Name, b.Name) })
	n := 0
	for part := range slices.Chunk(fixed, faultsAtOnce) {
		n++
		for mode, run := range map[string]func(*testing.T, *place, []modeltest.Fault){"text": faultsInText, "stream": faultsInStream, "agent": faultsBesideAgent} {
			t.Run(fmt.Sprintf("%s-%d", mode, n), func(t *testing.T) {
				t.Parallel()
				run(t, newPlace(t, bin), part)
			})
		}
	}
	for _, f := range fatal {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, bin)
			fatalFault(t, p, f)
		})
	}
	for name, test := range faultEnds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// halfAnswer is one of which nothing may be seen once it has failed.
func halfAnswer(name string) modeltest.Answer {
	return modeltest.Answer{Usage: agent.Usage{InputTokens: 10}, Blocks: []agent.Block{agent.TextBlock("a secret half of " + name + ". " + strings.Repeat("More. ", 30)),
		modeltest.ToolUse("toolu_half1", "Bash", bash("touch half-"+name)), modeltest.ToolUse("toolu_half2", "Bash", bash("touch half-"+name))}}
}

// faultsNamed are the faults whose calls can be told from each other.
func faultsNamed(t *testing.T, all []modeltest.Fault) []modeltest.Fault {
	t.Helper()
	out := make([]modeltest.Fault, len(all))
	for i, f := range all {
		fresh := modeltest.Faults(modeltest.Messages, halfAnswer(f.Name))
		at := slices.IndexFunc(fresh, func(g modeltest.Fault) bool { return g.Name == f.Name })
		if at < 0 {
			t.Fatalf("no fault %s", f.Name)
		}
		out[i] = fresh[at]
	}
	return out
}

// through are steps that meet each fault once and then do what was asked.
func through(faults []modeltest.Fault) (steps []step) {
	for _, f := range faults {
		steps = append(steps, func(*modeltest.Request) modeltest.Answer { return f.Answer }, calls("Bash", bash("touch whole-"+f.Name)))
	}
	return steps
}

// ran checks what the faults have left: no half call was run, every whole one was,
// and no half answer stands in a conversation.
func (p *place) ran(faults []modeltest.Fault) {
	p.t.Helper()
	for _, f := range faults {
		if _, err := os.Stat(filepath.Join(p.dir, "whole-"+f.Name)); err != nil {
			p.t.Errorf("%s: %v", f.Name, err)
		}
	}
	p.noHalf()
}

func (p *place) noHalf() {
	p.t.Helper()
	half, err := filepath.Glob(filepath.Join(p.dir, "half-*"))
	if err != nil || len(half) > 0 {
		p.t.Errorf("calls of half answers were run: %q, %v", half, err)
	}
	err = filepath.WalkDir(filepath.Join(p.work, "state"), func(path string, e os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".jsonl") || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), "secret half") {
			p.t.Errorf("%s holds a half answer", path)
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
}

// heldRun is run with a command in the background that ends once stderr says a text.
func (p *place) heldRun(until string, args ...string) result {
	p.t.Helper()
	fifo := p.fifo("held")
	r := p.start(args...)
	r.says(until)
	p.free(fifo)
	return r.wait()
}

// survived checks that the command in the background came to its own end.
func (p *place) survived() {
	p.t.Helper()
	if raw, err := os.ReadFile(filepath.Join(p.dir, "background")); err != nil || string(raw) != "to the end\n" {
		p.t.Errorf("the command in the background left %q, %v", raw, err)
	}
}

// Commands in the background: behind takes its time, and heldBack ends when [place.heldRun] lets it.
const (
	toTheEnd = "echo to the end > background"
	behind   = "sleep 1.5; " + toTheEnd
	heldBack = "cat held; " + toTheEnd
)

func faultsInText(t *testing.T, p *place, faults []modeltest.Fault) {
	faults = faultsNamed(t, faults)
	m := p.model(map[string][]step{"main": slices.Concat([]step{calls("Bash", later(behind))}, through(faults), []step{says("all is done"), says("all is done")})})
	r := p.run("-p", "go", anything, "--max-turns=99")
	if r.code != 0 || r.stdout() != "all is done" {
		t.Errorf("exit code %d, %q\n%s", r.code, r.stdout(), r.stderr)
	}
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	if len(lines) != len(faults) {
		t.Errorf("%d lines for %d faults:\n%s", len(lines), len(faults), r.stderr)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "drover: model call failed: ") || !strings.Contains(line, "(retry 1 of 9 in ") {
			t.Errorf("stderr says %q", line)
		}
	}
	// The end of the command may be told in a turn of its own.
	if n := m.Count() - 2*len(faults); n < 2 || n > 3 {
		t.Errorf("%d calls for %d faults", m.Count(), len(faults))
	}
	p.ran(faults)
	p.survived()
}

func faultsInStream(t *testing.T, p *place, faults []modeltest.Fault) {
	faults = faultsNamed(t, faults)
	p.model(map[string][]step{"main": slices.Concat([]step{calls("Bash", later(behind))}, through(faults), []step{says("all is done"), says("all is done")})})
	r := p.good("-p", "go", anything, "--max-turns=99", "--output-format=stream-json", "--include-partial-messages")
	all := r.objects(t)
	retries := only(all, "api_retry")
	if len(retries) != len(faults) {
		t.Errorf("%d api_retry for %d faults", len(retries), len(faults))
	}
	for _, o := range retries {
		delay, _ := o["retry_delay_ms"].(float64)
		_, hasStatus := o["error_status"]
		if o["attempt"] != 1.0 || o["max_retries"] != 9.0 || delay <= 0 || !hasStatus || o["error_message"] == "" ||
			!slices.Contains([]any{"rate_limit", "overloaded", "server_error", "unknown"}, o["error"]) {
			t.Errorf("%v", o)
		}
	}
	shown, open, left := "", "", 0
	for _, o := range all {
		switch o.kind() {
		case "partial_message_discarded":
			if open == "" {
				t.Error("something is taken back that was not there")
			}
			open = ""
		case "stream_event":
			event, _ := o["event"].(map[string]any)
			delta, _ := event["delta"].(map[string]any)
			text, _ := delta["text"].(string)
			switch open += text; event["type"] {
			case "message_start":
				if open != "" {
					left++
				}
				open = " "
			case "message_stop":
				shown, open = shown+open, ""
			}
		}
	}
	if left > 0 || strings.Contains(shown, "secret half") || !strings.Contains(shown, "all is done") {
		t.Errorf("%d replies have neither an end nor a word that they are void; what is left is %q", left, shown)
	}
	p.ran(faults)
	p.survived()
}

// faultsBesideAgent lets the calls of both the main agent and an agent in the
// background break.
func faultsBesideAgent(t *testing.T, p *place, faults []modeltest.Fault) {
	faults = faultsNamed(t, faults)
	mine, its := faults[:len(faults)/2], faults[len(faults)/2:]
	over := make(chan struct{})
	var once sync.Once
	m := p.model(map[string][]step{
		"main": slices.Concat([]step{calls("Agent", asks("general-purpose", "look", "run_in_background", true))}, through(mine),
			[]step{func(*modeltest.Request) modeltest.Answer {
				once.Do(func() { close(over) })
				return modeltest.Text("it looks")
			}, says("it has looked")}),
		"general-purpose": slices.Concat(through(its), []step{held(over, says("what it saw"))}),
	})
	r := p.good("-p", "go", anything, "--max-turns=99", "--output-format=stream-json")
	all := r.objects(t)
	// A pause that the provider asked of one agent holds the calls of the other, which
	// says so as its attempt 0.
	retries := slices.DeleteFunc(only(all, "api_retry"), func(o object) bool {
		return o["attempt"] == 0.0 && strings.Contains(fmt.Sprint(o["error_message"]), "asked all calls")
	})
	if len(retries) != len(faults) {
		t.Errorf("%d api_retry for %d faults: %v", len(retries), len(faults), retries)
	}
	if got := only(all, "task_notification"); len(got) != 1 || got[0]["status"] != "completed" || got[0]["summary"] != "what it saw" {
		t.Errorf("notifications %v", got)
	}
	sent := of(m, "main")
	holds(t, "the main agent", sent[len(sent)-1].LastText(), "what it saw")
	p.ran(faults)
}

// fatalFault ends the turn at once, and not what runs beside it.
func fatalFault(t *testing.T, p *place, f modeltest.Fault) {
	f = faultsNamed(t, []modeltest.Fault{f})[0]
	m := p.model(map[string][]step{"main": {calls("Bash", later(heldBack)), func(*modeltest.Request) modeltest.Answer { return f.Answer }, says("never")}})
	r := p.heldRun("the turn has failed", "-p", "go", anything, "--output-format=stream-json")
	all := r.objects(t)
	last := only(all, "result")
	if r.code != 1 || m.Count() != 2 || len(only(all, "api_retry")) > 0 || len(last) != 1 || last[0]["is_error"] != true || last[0]["terminal_reason"] != "model_error" {
		t.Errorf("exit code %d after %d calls, result %v\n%s", r.code, m.Count(), last, r.stderr)
	}
	holds(t, "stderr", r.stderr, "drover: the turn has failed: ", "1 task (Ctrl-C stops it)")
	if got := only(all, "task_notification"); len(got) != 1 || got[0]["status"] != "completed" {
		t.Errorf("notifications %v", got)
	}
	p.noHalf()
	p.survived()
}

// faultEnds are tests of calls that are given up, and of answers that are not whole
// although nothing failed.
func faultEnds() cases {
	broken := func(*modeltest.Request) modeltest.Answer {
		body := halfAnswer("x").Stream("m")
		at := strings.LastIndex(string(body[:len(body)*2/3]), "\n\n") + 2
		return modeltest.Answer{Header: http.Header{"Retry-After-Ms": {"10"}},
			Raw: append(body[:at:at], modeltest.ErrorEvent(modeltest.Messages, "overloaded_error", "Overloaded")...)}
	}
	stopped := func(reason string, s step) step {
		return func(r *modeltest.Request) modeltest.Answer { a := s(r); a.StopReason = reason; return a }
	}
	return cases{
		"exhausted": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": slices.Concat([]step{calls("Bash", later(heldBack))}, slices.Repeat([]step{broken}, 10), []step{says("goes on")})})
			r := p.heldRun("background work is waited for", "-p", "go", anything, "--output-format=stream-json", "--include-partial-messages")
			all := r.objects(t)
			if r.code != 1 || m.Count() != 11 || len(only(all, "api_retry")) != 9 || len(only(all, "partial_message_discarded")) != 10 {
				t.Errorf("exit code %d after %d calls, %d retries, %d taken back", r.code, m.Count(), len(only(all, "api_retry")), len(only(all, "partial_message_discarded")))
			}
			holds(t, "stderr", r.stderr, "overloaded", "after 10 tries", "background work is waited for")
			last := only(all, "result")[0]
			if used, _ := last["usage"].(map[string]any); used["input_tokens"] != 100.0 || last["num_turns"] != 1.0 {
				t.Errorf("what had come is not counted: %v", last)
			}
			p.noHalf()
			p.survived()
			id, _ := last["session_id"].(string)
			if got := p.good("-p", "and on", "--resume", id, anything).stdout(); got != "goes on" {
				t.Errorf("printed %q", got)
			}
		},
		"exhaustedtext": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": slices.Repeat([]step{broken}, 10)})
			r := p.run("-p", "go", anything)
			if r.code != 1 || r.stdout() != "" || strings.Count(r.stderr, "drover: model call failed: ") != 9 || strings.Count(r.stderr, "\n") != 10 {
				t.Errorf("exit code %d, %q\n%s", r.code, r.stdout(), r.stderr)
			}
			holds(t, "stderr", r.stderr, "(retry 9 of 9 in ", "after 10 tries")
		},
		"exhaustedagent": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main": {calls("Agent", asks("general-purpose", "look")), says("it could not"), func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("Agent", asks("general-purpose", "go on", "resume", found(r, `(a[0-9a-z]{8})`)))
				}, says("now it could")},
				"general-purpose": slices.Concat([]step{func(*modeltest.Request) modeltest.Answer {
					return modeltest.Answer{Blocks: []agent.Block{agent.TextBlock("so far so good"), modeltest.ToolUse("", "Bash", bash("true"))}}
				}}, slices.Repeat([]step{broken}, 10), []step{says("seen")}),
			})
			r := p.run("-p", "go", anything, "--output-format=stream-json")
			if r.code != 0 {
				t.Fatal(r.stderr)
			}
			told := of(m, "main")[1].LastText()
			holds(t, "the main agent", told, "so far so good", "overloaded", "after 10 tries")
			if strings.Contains(told, "secret") {
				t.Errorf("the main agent is told %q", told)
			}
			id, _ := r.objects(t)[0]["session_id"].(string)
			if got := p.good("-p", "again", "--resume", id, anything).stdout(); got != "now it could" {
				t.Errorf("printed %q", got)
			}
			holds(t, "the main agent", of(m, "main")[3].LastText(), "seen")
			p.noHalf()
		},
		"nowait": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", later("sleep 1000")), func(*modeltest.Request) modeltest.Answer {
				return modeltest.Error(400, "invalid_request_error", "no")
			}}})
			r := p.run("-p", "go", anything, "--no-wait")
			if r.code != 1 {
				t.Errorf("exit code %d", r.code)
			}
			holds(t, "stderr", r.stderr, "drover: stopping b", "since the turn has failed")
		},
		"maxtokens": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {stopped("max_tokens", says("the first part"))}})
			r := p.run("-p", "go")
			r.failed(t, 1, "the answer is not complete")
			if r.stdout() != "the first part" {
				t.Errorf("printed %q", r.stdout())
			}
		},
		"refusal": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {stopped("refusal", says("I would rather not"))}})
			r := p.run("-p", "go", "--output-format=json")
			r.failed(t, 1, "refused to answer")
			last := r.objects(t)[0]
			if last["is_error"] != true || last["subtype"] != "error_during_execution" || last["terminal_reason"] != "refusal" || last["stop_reason"] != "refusal" || last["result"] != "I would rather not" {
				t.Errorf("%v", last)
			}
		},
		"window": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {stopped("model_context_window_exceeded", says("a part"))}})
			p.fails(1, []string{"-p", "go"}, "filled the window")
		},
		"pause": func(_ *testing.T, p *place) {
			p.model(map[string][]step{"main": {stopped("pause_turn", says("wait")), says("done")}})
			if got := p.good("-p", "go").stdout(); got != "done" {
				p.t.Errorf("printed %q", got)
			}
		},
		"maxtokenscall": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {stopped("max_tokens", calls("Bash", bash("touch half-call"))), says("in smaller parts")}})
			if got := p.good("-p", "go", anything).stdout(); got != "in smaller parts" {
				t.Errorf("printed %q", got)
			}
			p.noHalf()
		},
		"maxtokensagent": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{
				"main":            {calls("Agent", asks("general-purpose", "look")), says("it was cut")},
				"general-purpose": {stopped("max_tokens", says("half a report"))},
			})
			r := p.good("-p", "go", "--output-format=stream-json")
			got := only(r.objects(t), "task_notification")
			if len(got) != 1 || got[0]["status"] != "failed" || fmt.Sprint(got[0]["cause"]) != "map[actor:self reason:max_tokens]" {
				t.Errorf("notifications %v", got)
			}
			holds(t, "the main agent", of(m, "main")[1].LastText(), "half a report", "not complete")
		},
	}
}
