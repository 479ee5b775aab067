package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// promptOptions are tests of flags, permissions and conversations that go on.
func promptOptions() cases {
	return cases{
		"agent": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("ok")}})
			p.good("-p", "go", "--agent", "explore")
			params, err := m.Requests()[0].Params()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range params.Tools {
				names = append(names, tool.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, []string{"Glob", "Grep", "Read"}) {
				t.Errorf("tools of explore: %v", names)
			}
		},
		"system": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("ok")}})
			p.good("-p", "go", "--systemPrompt", "Be short.", "--append-system-prompt=And kind.")
			params, err := m.Requests()[0].Params()
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"Be short.", "And kind."} {
				if !strings.Contains(string(params.System), want) {
					t.Errorf("no %q in the system prompt %s", want, params.System)
				}
			}
		},
		"schema": func(t *testing.T, p *place) {
			value := func(v string) step { return calls("StructuredOutput", map[string]any{"color": v}) }
			m := p.model(map[string][]step{"main": {says("it is red"), value("rouge"), value("red")}})
			file := p.file("color.json", `{"type":"object","properties":{"color":{"enum":["red","green"]}},"required":["color"]}`)
			r := p.good("-p", "go", "--json-schema", file, "--permission-mode", "dontAsk")
			if r.stdout() != `{"color":"red"}` {
				t.Errorf("printed %q", r.stdout())
			}
			for i, want := range []string{"calling StructuredOutput", "does not fit the schema"} {
				if said := m.Requests()[i+1].LastText(); !strings.Contains(said, want) {
					t.Errorf("told %q, want %q", said, want)
				}
			}
			p.fails(2, []string{"-p", "go", "--json-schema", "none.json"}, "--json-schema", "none.json")
			p.fails(2, []string{"-p", "go", "--json-schema", `{"type":"string"}`}, "must describe an object")
		},
		"sources": func(t *testing.T, p *place) {
			config := ""
			for _, kv := range p.env {
				if dir, ok := strings.CutPrefix(kv, "XDG_CONFIG_HOME="); ok {
					config = dir
				}
			}
			if config == "" {
				t.Fatal("no folder of the user")
			}
			user := func(name, text string) {
				path := filepath.Join(config, "drover", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			user("AGENTS.md", "the user's notes")
			user("settings.json", `{"permissions":{"deny":["Bash(echo user)"]}}`)
			user("commands/mine.md", "of the user")
			user("agents/hers.md", "---\nname: hers\ndescription: d\n---\nx")
			p.file("AGENTS.md", "the project's notes")
			p.file("CLAUDE.local.md", "the checkout's notes")
			p.file(".drover/settings.json", `{"permissions":{"deny":["Bash(echo project)"]}}`)
			p.file(".drover/settings.local.json", `{"permissions":{"deny":["Bash(echo local)"]}}`)
			p.file(".claude/agents/his.md", "---\nname: his\ndescription: d\n---\nx")
			p.file(".claude/commands/ours.md", "of the project")
			p.file(".mcp.json", `{"mcpServers":{"there":{"command":"false"}}}`)
			for sources, want := range map[string]string{
				"": "", "user": "user", "project": "project", "local": "checkout local", "user,local,project": "user project checkout local",
			} {
				var turns []step
				for _, who := range []string{"user", "project", "local"} {
					turns = append(turns, calls("Bash", bash("echo "+who)))
				}
				m := p.model(map[string][]step{"main": append(turns, says("done"))})
				r := p.run("-p", "go", "--setting-sources="+sources, "--allowed-tools", "Bash", "--output-format", "stream-json")
				if r.code != 0 {
					t.Fatal(r.stderr)
				}
				all := r.objects(t)
				has := func(list any, name string) bool { l, _ := list.([]any); return slices.Contains(l, any(name)) }
				params, err := m.Requests()[0].Params()
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, who := range []string{"user", "project", "checkout"} {
					if strings.Contains(string(params.System), "the "+who+"'s notes") {
						got = append(got, who)
					}
				}
				for i, who := range []string{"user", "project", "local"} {
					denied := strings.Contains(m.Requests()[i+1].LastText(), "denied")
					if who == "local" && denied {
						got = append(got, who)
					} else if who != "local" && denied != slices.Contains(got, who) {
						t.Errorf("%q: the rule of the %s: %v", sources, who, denied)
					}
				}
				if text := strings.Join(got, " "); text != want {
					t.Errorf("%q: files of %q count, want %q", sources, text, want)
				}
				for name, who := range map[string]string{"hers": "user", "his": "project"} {
					if has(all[0]["agents"], name) != slices.Contains(got, who) {
						t.Errorf("%q: agents %v", sources, all[0]["agents"])
					}
				}
				for name, who := range map[string]string{"mine": "user", "ours": "project"} {
					if has(all[0]["slash_commands"], name) != slices.Contains(got, who) {
						t.Errorf("%q: commands %v", sources, all[0]["slash_commands"])
					}
				}
				ofFolder := strings.Contains(sources, "project") || strings.Contains(sources, "local")
				if waits := strings.Contains(r.stderr, "drover trust"); waits != ofFolder {
					t.Errorf("%q: files that wait for trust: %v", sources, r.stderr)
				}
				p.env = p.env[:len(p.env)-2] // of this model
			}
			p.fails(2, []string{"-p", "go", "--setting-sources=team"}, "unknown source", "team")
		},
		"maxturns": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("echo 1")), calls("Bash", bash("echo 2")), says("never")}})
			r := p.run("-p", "go", "--max-turns", "2", "--output-format=json", "--allowed-tools=Bash")
			r.failed(t, 1, "2")
			o := r.objects(t)[0]
			if o["subtype"] != "error_max_turns" || o["is_error"] != true || o["num_turns"] != 2.0 {
				t.Errorf("result %v", o)
			}
		},
		"partialtext": func(t *testing.T, p *place) {
			p.file("s.yaml", "version: 1\nagents:\n  main:\n    - text: as far as I came\n      tools: [{name: Bash, input: {command: echo 1}}]\n")
			r := p.run("-p", "go", "--max-turns", "1", "--model=script:s.yaml", "--allowed-tools=Bash")
			if r.failed(t, 1); r.stdout() != "as far as I came" {
				t.Errorf("printed %q", r.stdout())
			}
		},
		"denied": func(t *testing.T, p *place) {
			for _, c := range []struct{ name, flag, line string }{
				{"unasked", "--permission-mode=default", touchDenied},
				{"forbidden", "--disallowedTools=Bash(touch:*)", "Bash call denied by the rule Bash(touch:*); only removing that rule allows it"},
				{"plan", "--permissionMode=plan", "Bash call denied: plan mode: only reading is allowed (no rule allows touch; ExitPlanMode or another permission mode ends it)"},
				{"dontask", "--permission-mode=dontAsk", "Bash call denied: mode dontAsk denies what is not allowed: no rule allows touch (allow it with --allowed-tools 'Bash(touch it)')"},
			} {
				args := []string{"-p", "go", "--output-format=json", "--model=script:s.yaml", c.flag}
				if c.name == "forbidden" {
					args = append(args, "--allowed-tools=Bash")
				}
				p.file("s.yaml", "version: 1\nagents:\n  main:\n    - tools: [{name: Bash, id: toolu_x, input: {command: touch it}}]\n    - text: \"told: {{last}}\"\n")
				o := p.denied(args, c.line).objects(t)[0]
				denials, _ := o["permission_denials"].([]any)
				if len(denials) != 1 {
					t.Errorf("%s: denials %v", c.name, denials)
					continue
				}
				d := object(denials[0].(map[string]any))
				if d["tool_name"] != "Bash" || d["tool_use_id"] != "toolu_x" || d["tool_input"].(map[string]any)["command"] != "touch it" {
					t.Errorf("%s: denial %v", c.name, d)
				}
				if told, _ := o["result"].(string); len(told) < len("told: ")+10 {
					t.Errorf("%s: the model was told %q", c.name, told)
				}
				if _, err := os.Stat(filepath.Join(p.dir, "it")); err == nil {
					t.Errorf("%s: the command ran", c.name)
				}
			}
		},
		"allowed": func(t *testing.T, p *place) {
			for _, args := range [][]string{
				{"--allowedTools", "Bash(touch:*),Read"}, {"--allowed-tools=Read Bash(touch *)"}, {"--permission-mode", "bypassPermissions"},
				{"--settings", `{"permissions":{"allow":["Bash(touch:*)"]}}`}, {"--settings", p.file("set.json", `{"permissions":{"allow":["Bash(touch:*)"]}}`)},
			} {
				p.file("s.yaml", "version: 1\nagents:\n  main:\n    - tools: [{name: Bash, input: {command: touch it}}]\n    - text: done\n")
				o := p.good(append([]string{"-p", "go", "--output-format=json", "--model=script:s.yaml"}, args...)...).objects(t)[0]
				if err := os.Remove(filepath.Join(p.dir, "it")); err != nil {
					t.Errorf("%q: %v, %v", args, err, o["permission_denials"])
				}
			}
		},
		"projectsettings": func(t *testing.T, p *place) {
			p.file(".drover/settings.json", `{"permissions":{"allow":["Bash"],"deny":["Bash(cat:*)"]}}`)
			p.file("s.yaml", "version: 1\nagents:\n  main:\n    - tools:\n        - {name: Bash, input: {command: touch it}}\n        - {name: Bash, input: {command: cat s.yaml}}\n    - text: done\n")
			r := p.denied([]string{"-p", "go", "--output-format=json", "--model=script:s.yaml"},
				"note: the files of this folder would execute or allow something (.drover/settings.json), which has no effect until you trust it (see `drover trust`)",
				touchDenied,
				"Bash call denied by the rule Bash(cat:*); only removing that rule allows it")
			if denials, _ := r.objects(t)[0]["permission_denials"].([]any); len(denials) != 2 {
				t.Errorf("denials %v, want two: a project cannot allow, but deny", denials)
			}
		},
		"resume": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("first answer"), says("second answer"), says("third answer"), says("fourth")}})
			id, _ := p.good("-p", "first question", "--output-format=json").objects(t)[0]["session_id"].(string)
			for i, args := range [][]string{{"--resume", id}, {"--continue"}, {"-r", id[:8]}} {
				o := p.good(append([]string{"-p", "next question", "--output-format=json"}, args...)...).objects(t)[0]
				if o["session_id"] != id || o["result_index"] != 0.0 {
					t.Errorf("%q answers %v", args, o)
				}
				said := texts(t, m.Requests()[i+1])
				if count(said, "first question") != 1 || count(said, "first answer") != 1 || count(said, "next question") != i+1 {
					t.Errorf("%q asks %q", args, said)
				}
			}
		},
		"sessionid": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("one"), says("two")}})
			const id = "0b8f1c1e-1d2f-4a77-9d2e-4b3f5a6c7d8e"
			p.good("-p", "a", "--session-id", id)
			if got := m.Requests()[0].SessionID(); got != id {
				t.Errorf("session %s, want %s", got, id)
			}
			p.good("-p", "b", "--resume", id)
			if said := texts(t, m.Requests()[1]); count(said, "one") != 1 {
				t.Errorf("the conversation does not go on: %q", said)
			}
		},
		"open": func(t *testing.T, p *place) {
			go1 := make(chan struct{})
			p.model(map[string][]step{"main": {says("first"), held(go1, says("second"))}})
			id, _ := p.good("-p", "a", "--output-format=json").objects(t)[0]["session_id"].(string)
			busy := p.start("-p", "b", "--resume", id, "--output-format=stream-json")
			busy.until(`"init"`)
			p.fails(1, []string{"-p", "c", "--resume", id}, id, "process")
			p.fails(1, []string{"-p", "c", "--continue"}, id)
			p.fails(1, []string{"-p", "c", "--session-id", id}, id)
			close(go1)
			if r := busy.wait(); r.code != 0 {
				t.Errorf("exit code %d: %s", r.code, r.stderr)
			}
		},
		"usage": func(t *testing.T, p *place) {
			p.env = append(p.env, "ANTHROPIC_API_KEY=sk-test")
			for _, c := range []struct {
				code int
				args []string
				say  string
			}{
				{2, []string{"-p"}, "prompt is missing"},
				{2, []string{"-p", "x", "--output-format", "xml"}, "xml"},
				{2, []string{"-p", "x", "--nosuchflag"}, "nosuchflag"},
				{2, []string{"-p", "x", "--max-turns", "-1"}, "max-turns"},
				{2, []string{"-p", "x", "--permission-mode", "wild"}, "wild"},
				{2, []string{"-p", "x", "--agent", "nobody"}, "nobody"},
				{2, []string{"-p", "x", "--continue", "--resume", "y"}, "mutually exclusive"},
				{2, []string{"-p", "x", "--session-id", "no id"}, "no id"},
				{2, []string{"-p", "x", "--wait-ceiling", "soon"}, "soon"},
				{2, []string{"-p", "x", "--add-dir", "nowhere"}, "nowhere"},
				{3, []string{"-p", "x", "--resume", "s12345678"}, "s12345678"},
				{3, []string{"-p", "x", "--continue"}, "no session"},
				{1, []string{"-p", "x", "--settings", "{\"permissions\":"}, "--settings"},
				{1, []string{"-p", "x", "--settings", "missing.json"}, "missing.json"},
				{1, []string{"-p", "x", "--allowed-tools", "Bash("}, "Bash("},
			} {
				t.Run(c.say, func(t *testing.T) { p.run(c.args...).failed(t, c.code, c.say) })
			}
		},
	}
}
