package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/internal/project/catalog"
)

// Agents of a server, and of plugins, from outside.
func TestCatalogs(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		"server": func(t *testing.T, p *place) {
			var down atomic.Bool
			text := atomic.Pointer[string]{}
			say := func(s string) { text.Store(&s) }
			say(`{"ada": {"description": "from afar", "prompt": "You are ada."}}`)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if down.Load() || r.Header.Get("Authorization") != "Bearer open-sesame" {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				_, _ = w.Write([]byte(*text.Load()))
			}))
			defer server.Close()
			p.env = append(p.env, "DROVER_AGENT_CATALOG="+server.URL, "WORD=open-sesame")
			token := set(t, object{"agents": object{"catalog": object{"tokenEnv": "WORD"}}})
			m := p.model(map[string][]step{"main": {calls("Agent", asks("ada", "work")), says("all done")}, "ada": {says("ada is here")}})
			if r := p.run("-p", "go", token); r.code != 0 || r.stdout() != "all done" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			if len(of(m, "ada")) != 1 {
				t.Fatal("the agent of the server did not run")
			}
			down.Store(true) // what it said is kept
			if r := p.run("agents", "list"); r.code != 0 || !strings.Contains(r.stdout(), "ada") || !strings.Contains(r.stderr, "agents check") {
				t.Errorf("list: exit code %d, %s%s", r.code, r.stdout(), r.stderr)
			}
			p.model(map[string][]step{"main": {calls("Agent", asks("ada", "work")), says("all done")}, "ada": {says("ada is here")}})
			if r := p.run("-p", "go", token); r.code != 0 || r.stdout() != "all done" || !strings.Contains(r.stderr, "502") {
				t.Errorf("without the server: exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			// A project must not say where agents come from.
			p.env = append(p.env, "DROVER_AGENT_CATALOG=")
			p.file(".drover/settings.json", `{"agents": {"catalog": {"url": "`+server.URL+`"}}, "plugins": ["/x"]}`)
			p.good("trust", "--yes")
			if r := p.run("agents", "list"); strings.Contains(r.stdout(), "ada") {
				t.Errorf("a project has named a server: %s", r.stdout())
			}
		},
		"plugin": func(t *testing.T, p *place) {
			put := func(name, text string) {
				path := filepath.Join(p.work, "plug", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put(".claude-plugin/plugin.json", `{"name": "plug"}`)
			put("agents/ada.md", "---\nname: ada\ndescription: from a plugin\n---\nYou are ada.\n")
			put("skills/dig/SKILL.md", "---\nname: dig\ndescription: how to dig\n---\nDig deep.\n")
			plugged := set(t, object{"plugins": []string{filepath.Join(p.work, "plug"), filepath.Join(p.work, "gone")}})
			m := p.model(map[string][]step{"main": {calls("Skill", object{"skill": "dig"}), calls("Agent", asks("ada", "work")), says("all done")}, "ada": {says("ada is here")}})
			r := p.run("-p", "go", plugged)
			if r.code != 0 || r.stdout() != "all done" || !strings.Contains(r.stderr, filepath.Join(p.work, "gone")) {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			main := of(m, "main")
			if len(of(m, "ada")) != 1 || !strings.Contains(strings.Join(texts(t, main[len(main)-1]), "\n"), "Dig deep.") {
				t.Errorf("the agent ran %d times", len(of(m, "ada")))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// Every tool that an agent has can be named by a permission rule.
func TestToolNames(t *testing.T) {
	p := newPlace(t, build(t))
	p.file("s.yaml", "version: 1\nagents:\n  main:\n    - text: done\n")
	// With --autopilot there is task_complete too, which nobody calls here.
	out := p.run("-p", "--output-format", "stream-json", "--autopilot", "--model", "script:s.yaml", "hi").stdout()
	first, _, _ := strings.Cut(out, "\n")
	var init struct {
		Tools []string `json:"tools"`
	}
	if err := json.Unmarshal([]byte(first), &init); err != nil || len(init.Tools) < 10 {
		t.Fatalf("%v in %s", err, first)
	}
	for _, name := range init.Tools {
		if !catalog.KnownTool(name) {
			t.Errorf("no rule can be about %s", name)
		}
	}
}
