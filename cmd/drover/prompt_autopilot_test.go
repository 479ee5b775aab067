package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// promptAutopilot are tests of prompts that go on until the agent says that all
// is done.
func promptAutopilot() cases {
	done := calls("task_complete", map[string]any{"summary": "did it"})
	return cases{
		"text": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("I think that is all."), done}})
			if r := p.good("-p", "go", "--autopilot"); r.stdout() != "did it" || len(m.Requests()) != 2 {
				t.Errorf("printed %q after %d requests", r.stdout(), len(m.Requests()))
			}
		},
		"lines": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("I think that is all."), done}})
			var results []object
			for _, o := range p.good("-p", "go", "--autopilot", "--output-format=stream-json").objects(t) {
				if o["type"] == "result" {
					results = append(results, o)
				}
				if text, _ := o["message"].(map[string]any); text["role"] == "user" && o["tool_use_result"] == nil {
					t.Errorf("the reminder is shown: %v", o)
				}
			}
			if len(results) != 2 || results[1]["result"] != "did it" || results[1]["subtype"] != "success" {
				t.Errorf("results %v", results)
			}
		},
		"limit": func(t *testing.T, p *place) {
			six := slices.Repeat([]step{says("I think that is all.")}, 6)
			p.model(map[string][]step{"main": six})
			r := p.run("-p", "go", "--autopilot")
			if r.failed(t, 1, "not marked as complete after 5 reminders"); r.stdout() != "I think that is all." {
				t.Errorf("printed %q", r.stdout())
			}
		},
		"off": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("I think that is all.")}})
			if r := p.good("-p", "go"); r.stdout() != "I think that is all." || len(m.Requests()) != 1 {
				t.Errorf("printed %q after %d requests", r.stdout(), len(m.Requests()))
			}
		},
		"stream": func(t *testing.T, p *place) {
			gate := make(chan struct{})
			p.model(map[string][]step{
				"main":    {held(gate, calls("Agent", map[string]any{"description": "d", "prompt": "look", "subagent_type": "explore"})), says("looked"), done},
				"explore": {says("found it")},
			})
			p.detached("--autopilot")
			names := p.names(t, func() { close(gate) })
			want := []string{"create", "begin", "subagent_session_boundary", "complete", "subagent_session_boundary", "agent_completed", "session.task_complete", "session.idle"}
			var got []string
			for _, n := range names { // of the agent and of the session; the main agent is a task too
				if slices.Contains(want[2:], n) && n != "complete" {
					got = append(got, n)
				}
			}
			if expected := slices.DeleteFunc(slices.Clone(want[2:]), func(n string) bool { return n == "complete" }); !slices.Equal(got, expected) {
				t.Errorf("names %q, want %q among them in this order", names, expected)
			}
		},
	}
}

// names are those on the event stream of the only live session, up to the rest
// behind the end of its work. opened is called once the stream is open.
func (p *place) names(t *testing.T, opened func()) (names []string) {
	t.Helper()
	var socket string
	var all []object
	if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o["live"] == true {
			socket, _ = o["socket"].(string)
		}
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://drover/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	opened()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			names = append(names, name)
			if name == "session.idle" && slices.Contains(names, "session.task_complete") {
				return names
			}
		}
	}
	t.Fatalf("the stream ended with %q: %v", names, lines.Err())
	return nil
}
