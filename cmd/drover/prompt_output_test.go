package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

func promptOutputs() cases {
	return cases{
		"text": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("Hello <you> & all.")}})
			if r := p.good("-p", "say", "hello"); r.stdout() != "Hello <you> & all." {
				t.Errorf("printed %q", r.stdout())
			}
			r := m.Requests()[0]
			if got := r.LastText(); !strings.HasSuffix(got, "say hello") {
				t.Errorf("the model was asked %q", got)
			}
			if r.Header.Get("X-Api-Key") != "sk-test" {
				t.Error("the key was not sent")
			}
		},
		"stdin": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("ok"), says("ok"), says("ok")}})
			for _, c := range []struct{ args, stdin, want string }{
				{"-p", "what is this\n", "what is this"},
				{"-p explain", "piped text\n", "explain\n\npiped text"},
				{"-p explain", "", "explain"},
			} {
				cmd := p.command(strings.Fields(c.args)...)
				cmd.Stdin = strings.NewReader(c.stdin)
				if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
					t.Fatalf("%q: %v: %s", c.args, err, out)
				}
				if got := strings.TrimRight(m.Requests()[m.Count()-1].LastText(), "\n"); !strings.HasSuffix(got, "</system-reminder>\n"+c.want) {
					t.Errorf("%q with %q asks %q, want %q", c.args, c.stdin, got, c.want)
				}
			}
		},
		"openpipe": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("ok")}})
			cmd := p.command("-p", "hello")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(out)
			if err != nil || string(text) != "ok\n" {
				t.Errorf("with a silent stdin: %q, %v", text, err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			_ = in.Close()
		},
		"json": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("echo hi")), says("done")}})
			all := p.good("-p", "go", "--outputFormat", "json", "--allowedTools=Bash").objects(t)
			if len(all) != 1 {
				t.Fatalf("%d lines", len(all))
			}
			o := all[0]
			for key, want := range map[string]any{"type": "result", "subtype": "success", "is_error": false, "result": "done", "num_turns": 2.0,
				"result_index": 0.0, "terminal_reason": "completed", "stop_reason": "end_turn", "total_cost_usd": 0.0} {
				if o[key] != want {
					t.Errorf("%s is %v, want %v", key, o[key], want)
				}
			}
			for _, key := range []string{"usage", "modelUsage", "permission_denials", "duration_ms", "duration_api_ms", "session_id", "uuid", "subagent_stats"} {
				if o[key] == nil {
					t.Errorf("%s is missing", key)
				}
			}
		},
		"streamjson": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("echo hi")), says("done")}})
			all := p.good("-p", "go", "--output-format", "stream-json", "--verbose", "--allowed-tools", "Bash").objects(t)
			want := []string{"init", "assistant", "user", "assistant", "result"}
			if got := kindsOf(all); !slices.Equal(got, want) {
				t.Fatalf("lines %v, want %v", got, want)
			}
			for _, key := range []string{"cwd", "tools", "mcp_servers", "model", "permissionMode", "slash_commands", "agents", "skills", "plugins", "output_style"} {
				if all[0][key] == nil {
					t.Errorf("init lacks %s", key)
				}
			}
			if all[0]["cwd"] != p.dir {
				t.Errorf("cwd is %v", all[0]["cwd"])
			}
			structured, _ := all[2]["tool_use_result"].(map[string]any)
			if structured["stdout"] != "hi\n" || structured["code"] != 0.0 {
				t.Errorf("tool_use_result %v", structured)
			}
			uuids := map[any]bool{}
			for _, o := range all {
				uuids[o["uuid"]] = true
			}
			if len(uuids) != len(all) {
				t.Error("a uuid came twice")
			}
		},
		"partial": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("one two")}})
			all := p.good("-p", "go", "--output-format=stream-json", "--include-partial-messages").objects(t)
			if got := len(only(all, "stream_event")); got < 5 {
				t.Errorf("%d stream events", got)
			}
		},
		"empty": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says(""), says("")}})
			r := p.run("-p", "go")
			if r.code != 0 || r.stdout() != "" || !strings.Contains(r.stderr, "empty") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
		},
		"verbose": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", later("until [ -e go ]; do sleep 0.01; done; exit 3")), func(*modeltest.Request) modeltest.Answer {
				p.file("go", "")
				return modeltest.Text("started")
			}, says("it failed")}})
			r := p.run("-p", "go", "--verbose", "--allowed-tools", "Bash")
			if r.code != 0 || r.stdout() != "it failed" || !strings.Contains(r.stderr, "started") || !strings.Contains(r.stderr, "exit code 3") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
		},
		"script": func(t *testing.T, p *place) {
			p.file("s.yaml", "version: 1\nagents:\n  main:\n    - tools: [{name: Bash, input: {command: echo from 42}}]\n    - text: \"it said: {{last}}\"\n")
			if r := p.good("-p", "go", "--model", "script:s.yaml", "--allowed-tools=Bash"); !strings.Contains(r.stdout(), "it said: from 42") {
				t.Errorf("printed %q", r.stdout())
			}
		},
		"closedpipe": func(t *testing.T, p *place) {
			closed := make(chan struct{})
			m := p.model(map[string][]step{"main": {calls("Bash", later("sleep 600")), held(closed, says("started"))}})
			cmd := p.command("-p", "go", "--output-format", "stream-json", "--allowed-tools", "Bash")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			_ = out.Close()
			close(closed)
			if err := cmd.Wait(); exitCode(err) != 0 {
				t.Errorf("exit code %d after the reader went", exitCode(err))
			}
			if m.Count() > 2 {
				t.Errorf("%d requests although nobody reads", m.Count())
			}
		},
		"controls": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("a\x1b[31mred\x07\tb")}})
			if got := p.good("-p", "go").stdout(); strings.ContainsAny(got, "\x1b\x07") || !strings.Contains(got, "red") {
				t.Errorf("printed %q", got)
			}
		},
		"thinking": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer {
				a := modeltest.Text("seen")
				a.Blocks = append(a.Blocks[:0:0], append([]agent.Block{{Type: "thinking", Thinking: "hm", Signature: "sig"}}, a.Blocks...)...)
				return a
			}}})
			all := p.good("-p", "go", "--output-format=stream-json").objects(t)
			lines := only(all, "assistant")
			if len(lines) != 2 {
				t.Fatalf("%d assistant lines, want one for each block", len(lines))
			}
			first, second := lines[0]["message"].(map[string]any), lines[1]["message"].(map[string]any)
			if first["id"] != second["id"] {
				t.Error("blocks of one reply have several message IDs")
			}
		},
	}
}
