package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// counted waits until the counts of the newest task say so.
func (p *place) counted(texts ...string) {
	p.t.Helper()
	var last []byte
	if !within(patience, func() bool {
		all := p.tasks()
		if len(all) == 0 {
			return false
		}
		last, _ = json.Marshal(all[0]["progress"])
		for _, text := range texts {
			if !strings.Contains(string(last), text) {
				return false
			}
		}
		return true
	}) {
		p.t.Fatalf("the counts are %s, and never %q", last, texts)
	}
}

// add writes at the end of a file.
func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestMonitors watches things by the built program, as a model and as a user does.
func TestMonitors(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		// The model hears of an event while its command goes on, and ends it.
		"model": func(t *testing.T, p *place) {
			told := make(chan struct{})
			var id string
			m := p.model(map[string][]step{"main": {
				calls("Monitor", map[string]any{"description": "wait for an error", "command": "echo fine; echo ERR one; exec sleep 642", "match": "^ERR", "persistent": true}),
				func(r *modeltest.Request) modeltest.Answer {
					id = idOf(r)
					a := modeltest.Call("TaskOutput", map[string]any{"task_id": id, "block": false})
					a.Wait = told
					return a
				},
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("TaskStop", map[string]any{"task_id": id})
				},
				says("stopped"),
			}})
			r := p.start("-p", "go", anything, "--output-format=stream-json")
			p.counted(`"notified":1`)
			close(told)
			res := r.wait()
			all := res.objects(t)
			said := strings.Join(texts(t, m.Requests()[m.Count()-1]), "\n")
			if want := "<task-notification>\n<task-id>" + id + "</task-id>\n<event>ERR one</event>\n</task-notification>"; strings.Count(said, want) != 1 || strings.Contains(said, "<event>fine") {
				t.Errorf("the model was told %q", said)
			}
			holds(t, "the stop", m.Requests()[3].LastText(), "Successfully stopped", id)
			if n := only(all, "task_started"); len(n) != 1 || n[0]["task_type"] != "monitor_mcp" || n[0]["task_id"] != id {
				t.Errorf("started %v", n)
			}
			o := p.tasks("-a")[0]
			if c, _ := o["cause"].(map[string]any); o["status"] != "killed" || c["actor"] != "model" || res.code != 0 {
				t.Errorf("recorded as %v", o)
			}
		},
		// A conversation does not wait for its monitors: they end with it.
		"ends": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {
				calls("Monitor", map[string]any{"description": "a quiet one", "command": "exec sleep 643"}), says("done")}})
			r := p.run("-p", "go", anything)
			if r.code != 0 || r.stdout() != "done" {
				t.Fatalf("exit code %d: %q, %q", r.code, r.stdout(), r.stderr)
			}
			holds(t, "stderr", r.stderr, "stopped monitor m", "at the end: a quiet one")
			if o := p.tasks("-a")[0]; o["status"] != "killed" {
				t.Errorf("it is %v", o["status"])
			}
		},
		// What a rule for Bash forbids a monitor may not run either.
		"rules": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {
				calls("Monitor", map[string]any{"description": "x", "command": "touch made"}),
				calls("Monitor", map[string]any{"description": "x", "command": "true"}), says("done"), says("done")}}) // it may have ended by then
			if r := p.run("-p", "go", "--allowed-tools=Bash(true),Monitor"); r.code != 0 {
				t.Fatal(r.stderr)
			}
			holds(t, "the first call", m.Requests()[1].LastText(), "no rule allows")
			holds(t, "the second call", m.Requests()[2].LastText(), "Monitor started")
			if _, err := os.Stat(filepath.Join(p.dir, "made")); err == nil {
				t.Error("a command ran that nobody allowed")
			}
		},
		"off": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("done")}})
			p.good("-p", "go", set(t, object{"monitors": object{"enabled": false}}))
			if strings.Contains(string(m.Requests()[0].Body), `"Monitor"`) {
				t.Error("the model is offered the tool")
			}
		},
		// By hand: an ID at once, events counted, the lines to be followed.
		"hand": func(t *testing.T, p *place) {
			p.file("app.log", "old\n")
			id := p.good("monitor", "--persistent", "--name", "eye", "--match", "ERR", "--file", "app.log").stdout()
			follow := p.start("logs", "-f", id)
			p.counted(`"events":0`)
			for _, line := range []string{"fine", "ERR one", "ERR two"} {
				add(t, filepath.Join(p.dir, "app.log"), line+"\n")
			}
			p.counted(`"lines":3`, `"events":2`)
			holds(t, "ps", p.good("ps").stdout(), "monitor ", "2 events")
			p.good("stop", "eye")
			if got := follow.wait(); got.code != 0 || got.stdout() != "fine\nERR one\nERR two" {
				t.Errorf("logs says %q, %q", got.stdout(), got.stderr)
			}
			p.fails(2, []string{"monitor"}, "exactly one of")
			p.fails(2, []string{"monitor", "--persistent", "--timeout=5s", "true"}, "mutually exclusive")
			p.fails(2, []string{"monitor", "--match", "(", "--", "true"}, "regexp")
			p.fails(2, []string{"monitor", "--file", "x", "--", "true"}, "exactly one of")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}
