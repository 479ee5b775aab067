package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// driverArgs are the flags of a program that drives a session.
var driverArgs = []string{"--output-format=stream-json", "--verbose", "--input-format=stream-json", "--allowedTools=Bash(cat:*)"}

// drives starts the binary as a program does, which writes its stdin.
func (p *place) drives(args ...string) (*running, *os.File) {
	p.t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { out.Close() })
	r := p.startWith(in, append(driverArgs[:len(driverArgs):len(driverArgs)], args...)...)
	in.Close()
	return r, out
}

func write(t *testing.T, w io.Writer, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(w, line); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	sayGo = `{"type":"user","session_id":"","message":{"role":"user","content":[{"type":"text","text":"go"}]},"parent_tool_use_id":null}` + "\n"
	start = `{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}` + "\n"
)

// TestDriver has the built program driven by one that writes what it should not, and that
// goes away at any moment.
func TestDriver(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		"garbage": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("hello")}})
			r, in := p.drives()
			write(t, in, start, "garbage\n", "\n", "[1]\n", "7\n", "null\n", `{"type":7}`+"\n", `{"type":"unheard"}`+"\n",
				`{"type":"control_response","response":{"subtype":"success","request_id":"nobody"}}`+"\n",
				`{"type":"control_response"}`+"\n", `{"type":"control_cancel_request","request_id":"nobody"}`+"\n",
				`{"type":"control_request","request_id":"a","request":{"subtype":"fly"}}`+"\n",
				`{"type":"control_request","request_id":"b"}`+"\n",
				`{"type":"control_request","request_id":"c","request":[]}`+"\n",
				`{"type":"control_request","request_id":"d","request":{"subtype":"stop_task","task_id":7}}`+"\n",
				`{"type":"user"}`+"\n", `{"type":"user","message":{"content":7}}`+"\n", `{"type":"user","message":{"content":""}}`+"\n",
				"\xff\xfe\n")
			for _, id := range []string{"a", "b", "c", "d"} {
				r.until(`"control_response"`, `"request_id":"`+id+`"`, `"subtype":"error"`)
			}
			write(t, in, sayGo)
			r.until(`"result"`, "hello")
			write(t, in, `{"type":"user","message":{"role":"user"`) // half a line
			in.Close()
			res := r.wait()
			if res.code != 0 {
				t.Errorf("exit code %d", res.code)
			}
			for _, said := range []string{"not a JSON object", `"unheard" was skipped`, "answers no open request: nobody",
				"a prompt was not accepted: read its message", "a prompt was not accepted: read its content", "a prompt was not accepted: it is empty"} {
				if !strings.Contains(res.stderr, said) {
					t.Errorf("stderr does not say %q:\n%s", said, res.stderr)
				}
			}
			if strings.Count(res.stdout(), `"type":"result"`) != 1 {
				t.Errorf("printed %s", res.stdout())
			}
		},
		"long": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("hello")}})
			r, in := p.drives()
			piece := strings.Repeat("x", 1<<20)
			write(t, in, start, `{"type":"user","message":{"content":"`)
			for range 100 {
				write(t, in, piece)
			}
			write(t, in, `"}}`+"\n", sayGo)
			r.until(`"result"`, "hello")
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stderr, "a line of stdin has more than 64 MiB and was skipped") {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
		},
		"at once":           closes("", "", "no prompt came"),
		"in a line":         closes(`{"type":"control_requ`, "", "not a JSON object"),
		"after initialize":  closes(start, "", "no prompt came"),
		"after the prompt":  closes(start+sayGo, `"result":"done`, ""),
		"without a newline": closes(strings.TrimSpace(sayGo), `"result":"done`, ""),
		"in a call": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			p.model(map[string][]step{"main": {calls("Bash", bash("cat f")), says("done")}})
			r, in := p.drives("--permission-prompt-tool=stdio")
			write(t, in, start, sayGo)
			r.until(`"assistant"`, "cat f")
			in.Close()
			p.free(fifo)
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
		},
		"at a question": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", bash("touch made")), says("done")}})
			r, in := p.drives("--permission-prompt-tool=stdio")
			write(t, in, start, sayGo)
			r.until(`"can_use_tool"`, "touch made")
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if said := m.Requests()[1].LastText(); !strings.Contains(said, "closed stdin") {
				t.Errorf("the model was told %q", said)
			}
		},
		"in a hook": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", bash("cat none")), says("done")}})
			r, in := p.drives()
			write(t, in, `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","hooks":{"PreToolUse":`+
				`[{"matcher":"Bash","hookCallbackIds":["hook_0"],"timeout":600}]}}}`+"\n", sayGo)
			r.until(`"hook_callback"`)
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if m.Count() != 2 {
				t.Errorf("%d requests", m.Count())
			}
		},
		"in a call of its tool": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("mcp__calc__add", map[string]any{"a": 1}), says("done")}})
			r, in := p.drives("--allowedTools=mcp__calc__add")
			write(t, in, `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","sdkMcpServers":["calc"],`+
				`"sdkMcpServerManifests":{"calc":{"toolsListResult":{"tools":[{"name":"add","inputSchema":{"type":"object"}}]}}}}}`+"\n", sayGo)
			r.until(`"mcp_message"`, "tools/call")
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if said := m.Requests()[1].LastText(); !strings.Contains(said, "closed stdin") {
				t.Errorf("the model was told %q", said)
			}
		},
		"in a form": func(t *testing.T, p *place) {
			p.foreign(asker(), false)
			m := p.model(map[string][]step{"main": {calls("mcp__f__form", map[string]any{}), says("done")}})
			r, in := p.drives("--allowedTools=mcp__f")
			write(t, in, start, sayGo)
			r.until(`"elicitation"`, "Who?", `"mcp_server_name":"f"`)
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if said := m.Requests()[1].LastText(); !strings.Contains(said, "cancel") {
				t.Errorf("the model was told %q", said)
			}
		},
		"at a choice": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("AskUserQuestion", map[string]any{"questions": []any{map[string]any{
				"question": "Which?", "header": "x", "options": []any{map[string]any{"label": "a", "description": "a"},
					map[string]any{"label": "b", "description": "b"}}}}}), says("done")}})
			r, in := p.drives("--permission-prompt-tool=stdio")
			write(t, in, start, sayGo)
			r.until(`"can_use_tool"`, "AskUserQuestion", "Which?")
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if said := m.Requests()[1].LastText(); !strings.Contains(said, "closed stdin") {
				t.Errorf("the model was told %q", said)
			}
		},
		"in a hook of the start": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("done")}})
			r, in := p.drives()
			write(t, in, `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","hooks":{"SessionStart":`+
				`[{"hookCallbackIds":["hook_0"],"timeout":600}]}}}`+"\n", sayGo)
			r.until(`"hook_callback"`, "SessionStart")
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
		},
		"before background work ends": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			p.model(map[string][]step{"main": {calls("Bash", later("cat f")), says("started"), says("done")}})
			r, in := p.drives("--permission-prompt-tool=stdio")
			write(t, in, start, sayGo)
			r.until(`"result":"started"`)
			in.Close()
			p.free(fifo)
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
		},
		"in a line without an end": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("done")}})
			r, in := p.drives()
			piece := strings.Repeat("x", 1<<20)
			write(t, in, start, sayGo, `{"type":"user","message":{"content":"`)
			for range 100 {
				write(t, in, piece)
			}
			in.Close()
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), `"result":"done`) ||
				!strings.Contains(res.stderr, "more than 64 MiB") {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
		},
		// It is told to end while it waits for an answer, and the program keeps stdin open.
		"told to end": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", later("exec sleep 474")), calls("Bash", bash("touch made"))}})
			r, in := p.drives("--permission-prompt-tool=stdio", "--allowedTools=Bash(exec sleep 474)")
			write(t, in, start, sayGo)
			r.until(`"can_use_tool"`, "touch made")
			p.alive("sleep 474")
			if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if res := r.wait(); res.code == 0 {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			p.leaves(0, "sleep")
			in.Close()
		},
		// What comes twice, or too late, or of nothing, hinders nothing.
		"answers of nothing": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("touch made")), says("hello")}})
			r, in := p.drives("--permission-prompt-tool=stdio")
			write(t, in, start, start, sayGo)
			r.until(`"control_response"`, `"subtype":"error"`, "initialize must be the first line")
			r.answers(in, `{"behavior":"allow"}`, `"can_use_tool"`, "touch made")
			for range 1000 {
				write(t, in, `{"type":"control_response","response":{"subtype":"success","request_id":"drover-1","response":{"behavior":"deny"}}}`+"\n",
					`{"type":"control_request","request_id":"x","request":{"subtype":"fly"}}`+"\n")
			}
			r.until(`"result":"hello"`)
			in.Close()
			res := r.wait()
			if n := strings.Count(res.stdout(), `"request_id":"x"`); res.code != 0 || n != 1000 || !p.there("made") {
				t.Errorf("exit code %d, %d answers: %.1000s", res.code, n, res.stderr)
			}
		},
		// A server in the program may ask for what is not there; it is told so.
		"its server asks": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("hello")}})
			r, in := p.drives()
			say := func(id, message string) {
				write(t, in, `{"type":"control_request","request_id":"`+id+`","request":{"subtype":"mcp_message","server_name":"calc","message":`+
					message+"}}\n")
			}
			write(t, in, start)
			say("a", `{"jsonrpc":"2.0","method":"notifications/progress"}`)
			r.until(`"request_id":"a"`, `"subtype":"success"`)
			say("b", `{"jsonrpc":"2.0","id":"s7","method":"sampling/createMessage"}`)
			r.answers(in, `{"mcp_response":{"jsonrpc":"2.0","id":0,"result":{}}}`, `"mcp_message"`, `"id":"s7"`, "-32601", "sampling/createMessage")
			r.until(`"request_id":"b"`, `"subtype":"success"`)
			write(t, in, sayGo)
			r.until(`"result":"hello"`)
			in.Close()
			if res := r.wait(); res.code != 0 || res.stderr != "" {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
		},
		// Hooks, a denial, a changed input and an interrupt, as the Agent SDK for Python writes them.
		"python hooks": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", bash("touch one")), calls("Bash", bash("touch two")),
				calls("Bash", bash("touch three")), calls("Bash", bash("exec sleep 475")), says("again")}})
			r, in := p.drives("--permission-prompt-tool", "stdio", "--setting-sources", "", "--allowedTools", "Bash(exec sleep 475)",
				"--model", "test-model", "--agents", "{}")
			write(t, in, `{"type":"control_request","request_id":"req_1_ab","request":{"subtype":"initialize","hooks":{"PreToolUse":`+
				`[{"matcher":"Bash","hookCallbackIds":["hook_0"]}],"Stop":[{"matcher":null,"hookCallbackIds":["hook_1"]}]}}}`+"\n",
				`{"type":"user","message":{"role":"user","content":"go"},"parent_tool_use_id":null,"session_id":"default"}`+"\n")
			r.answers(in, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"not one"}}`,
				`"hook_callback"`, `"hook_0"`, "touch one")
			r.answers(in, `{"continue":true}`, `"hook_callback"`, "touch two")
			r.answers(in, `{"behavior":"deny","message":"not two","interrupt":false}`, `"can_use_tool"`, "touch two")
			r.answers(in, `{}`, `"hook_callback"`, "touch three")
			r.answers(in, `{"behavior":"allow","updatedInput":{"command":"touch changed"},"updatedPermissions":null}`,
				`"can_use_tool"`, "touch three")
			r.answers(in, `{}`, `"hook_callback"`, "sleep 475")
			p.alive("sleep 475")
			write(t, in, `{"type":"control_request","request_id":"req_2_cd","request":{"subtype":"interrupt"}}`+"\n")
			r.until(`"request_id":"req_2_cd"`, `"subtype":"success"`)
			r.until(`"result"`, "error_during_execution")
			write(t, in, `{"type":"user","message":{"role":"user","content":"on"},"parent_tool_use_id":null,"session_id":"default"}`+"\n")
			r.answers(in, `{}`, `"hook_callback"`, `"hook_1"`, `"Stop"`)
			r.until(`"result":"again"`)
			in.Close()
			if res := r.wait(); res.code != 0 {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if p.there("one") || p.there("two") || p.there("three") || !p.there("changed") {
				t.Error("the wrong calls were made")
			}
			for i, why := range map[int]string{1: "not one", 2: "not two"} {
				if said := m.Requests()[i].LastText(); !strings.Contains(said, why) {
					t.Errorf("the model was told %q", said)
				}
			}
		},
		"no list of tools": func(t *testing.T, p *place) {
			p.model(map[string][]step{})
			r, in := p.drives()
			write(t, in, `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","sdkMcpServers":["calc"]}}`+"\n")
			r.until(`"mcp_message"`, "initialize")
			in.Close()
			if res := r.wait(); res.code == 0 || !strings.Contains(res.stderr, "closed stdin") ||
				!strings.Contains(res.stdout(), `"subtype":"error"`) {
				t.Errorf("exit code %d: %s\n%s", res.code, res.stderr, res.stdout())
			}
		},
		// The flags and lines of a program that uses the Agent SDK for Python, by the notes there are of them.
		"python": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", bash("touch made")), calls("mcp__calc__add", map[string]any{"a": 1}), says("three")}})
			r, in := p.drives("--system-prompt", "", "--max-turns", "5", "--permission-prompt-tool", "stdio", "--permission-mode", "default",
				"--setting-sources", "", "--max-thinking-tokens", "1000", "--include-partial-messages", "--add-dir", p.dir,
				"--mcp-config", `{"mcpServers":{"calc":{"type":"sdk","name":"calc"}}}`)
			write(t, in, `{"type":"control_request","request_id":"req_1_ab","request":{"subtype":"initialize","hooks":null}}`+"\n",
				`{"type":"user","message":{"role":"user","content":"go"},"parent_tool_use_id":null,"session_id":"default"}`+"\n")
			answers := func(texts []string, answer string) { r.answers(in, answer, texts...) }
			answers([]string{`"mcp_message"`, `"method":"initialize"`}, `{"mcp_response":{"jsonrpc":"2.0","id":1,"result":{}}}`)
			answers([]string{`"mcp_message"`, `"tools/list"`},
				`{"mcp_response":{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"add","description":"adds","inputSchema":{"type":"object"}}]}}}`)
			r.until(`"control_response"`, `"request_id":"req_1_ab"`, `"subtype":"success"`)
			answers([]string{`"can_use_tool"`, "touch made"}, `{"behavior":"allow","updatedInput":{"command":"touch made"}}`)
			answers([]string{`"can_use_tool"`, "mcp__calc__add"}, `{"behavior":"allow"}`)
			answers([]string{`"mcp_message"`, `"tools/call"`},
				`{"mcp_response":{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}}`)
			r.until(`"result"`, "three")
			write(t, in, `{"type":"control_request","request_id":"req_2_cd","request":{"subtype":"set_permission_mode","mode":"plan"}}`+"\n",
				`{"type":"control_request","request_id":"req_3_ef","request":{"subtype":"interrupt"}}`+"\n",
				`{"type":"control_request","request_id":"req_4_gh","request":{"subtype":"mcp_status"}}`+"\n")
			r.until(`"request_id":"req_2_cd"`, `"subtype":"success"`)
			r.until(`"request_id":"req_3_ef"`, `"subtype":"success"`)
			r.until(`"request_id":"req_4_gh"`, `"calc"`, "connected")
			in.Close()
			if res := r.wait(); res.code != 0 || strings.Contains(res.stderr, "no effect") || strings.Contains(res.stderr, "skipped") {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if said := m.Requests()[2].LastText(); !strings.Contains(said, "3") {
				t.Errorf("the model was told %q", said)
			}
		},
		// A plan is approved like any call; the mode that replaces plan mode is told to the program.
		"plan": func(t *testing.T, p *place) {
			plan := func(text string) map[string]any { return map[string]any{"plan": text} }
			m := p.model(map[string][]step{"main": {calls("ExitPlanMode", plan("first")), calls("ExitPlanMode", plan("second")),
				calls("Write", map[string]any{"file_path": filepath.Join(p.dir, "made"), "content": "x"}), says("done")}})
			r, in := p.drives("--permission-prompt-tool=stdio", "--permission-mode=plan")
			write(t, in, start, sayGo)
			answer := func(plan, answer string) {
				t.Helper()
				line := r.until(`"can_use_tool"`, `"tool_name":"ExitPlanMode"`, `{"plan":"`+plan+`"}`,
					`{"type":"setMode","mode":"acceptEdits","destination":"session"}`)
				var l struct {
					ID string `json:"request_id"`
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				write(t, in, `{"type":"control_response","response":{"subtype":"success","request_id":"`+l.ID+`","response":`+answer+"}}\n")
			}
			answer("first", `{"behavior":"deny","message":"mind the tests"}`)
			answer("second", `{"behavior":"allow","updatedPermissions":[{"type":"setMode","mode":"acceptEdits","destination":"session"}]}`)
			r.until(`"result":"done"`)
			in.Close()
			res := r.wait()
			if res.code != 0 {
				t.Errorf("exit code %d: %s", res.code, res.stderr)
			}
			if !strings.Contains(res.stdout(), `"status":null,"permissionMode":"acceptEdits"`) {
				t.Errorf("the mode is not told: %s", res.stdout())
			}
			if !p.there("made") {
				t.Error("the approved plan was not carried out")
			}
			if said := m.Requests()[1].LastText(); !strings.Contains(said, "mind the tests") {
				t.Errorf("the model was told %q", said)
			}
		},
		// A prompt that the model does not read has a result of its own.
		"beside": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("hello")}})
			r, in := p.drives()
			prompt := func(text, uuid string) {
				write(t, in, `{"type":"user","uuid":"`+uuid+`","message":{"role":"user","content":"`+text+`"}}`+"\n")
				r.until(`"command_lifecycle"`, uuid, `"completed"`)
			}
			write(t, in, `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","hooks":{"UserPromptSubmit":`+
				`[{"hookCallbackIds":["hook_0"]}]}}}`+"\n")
			prompt("/autopilot off", "11111111-1111-4111-8111-111111111111")
			prompt("/compact", "22222222-2222-4222-8222-222222222222")
			write(t, in, `{"type":"user","uuid":"33333333-3333-4333-8333-333333333333","message":{"content":"go"}}`+"\n")
			r.until(`"hook_callback"`)
			write(t, in, `{"type":"control_response","response":{"subtype":"success","request_id":"drover-1","response":`+
				`{"decision":"block","reason":"not today"}}}`+"\n")
			r.until(`"command_lifecycle"`, "33333333", `"completed"`)
			in.Close()
			var got []string
			for _, o := range only(r.wait().objects(t), "result") {
				got = append(got, fmt.Sprint(o["subtype"], " ", o["terminal_reason"], " ", o["result_index"]))
			}
			want := []string{"success completed 0", "error_during_execution model_error 1", "error_during_execution hook_stopped 2"}
			if !slices.Equal(got, want) {
				t.Errorf("results %q, want %q", got, want)
			}
		},
		"refused": func(t *testing.T, p *place) {
			p.model(map[string][]step{})
			for flag, why := range map[string]string{
				`--managed-settings={"permissions":{"deny":["Bash"]}}`:                     "would not be enforced",
				`--settings={"sandbox":{"enabled":true,"network":{"httpProxyPort":1}}}`:    "sandbox.network.httpProxyPort is not supported",
				`--settings={"sandbox":{"enabled":true,"allowUnsandboxedCommands":false}}`: "allowUnsandboxedCommands false is not supported",
				"--resume-session-at=11111111-1111-4111-8111-1":                            "the whole session would be resumed",
				"--permission-prompt-tool=mcp__a__b":                                       "only stdio",
			} {
				r, in := p.drives(flag)
				r.wait().failed(t, 2, why)
				in.Close()
			}
			for request, why := range map[string]string{
				`{"subtype":"initialize","jsonSchema":{"type":"string"}}`: "must describe an object",
				`{"subtype":"initialize","agents":[]}`:                    "agents",
				`{"subtype":"initialize","hooks":7}`:                      "initialize",
			} {
				r, in := p.drives()
				write(t, in, `{"type":"control_request","request_id":"i","request":`+request+"}\n")
				r.until(`"control_response"`, `"subtype":"error"`, why)
				if res := r.wait(); res.code == 0 {
					t.Errorf("%s: exit code 0", request)
				}
				in.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// answers waits for a request of the binary that holds the texts, and answers it.
func (r *running) answers(in io.Writer, answer string, texts ...string) {
	r.p.t.Helper()
	line := r.until(append(texts, `"control_request"`)...)
	var l struct {
		ID string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		r.p.t.Fatal(err)
	}
	write(r.p.t, in, `{"type":"control_response","response":{"subtype":"success","request_id":"`+l.ID+`","response":`+answer+"}}\n")
}

// closes writes a text and goes away: the binary prints a line or none, says why on stderr
// or nothing, and ends well.
func closes(text, line, why string) func(*testing.T, *place) {
	return func(t *testing.T, p *place) {
		p.model(map[string][]step{"main": {says("done")}})
		r, in := p.drives()
		write(t, in, text)
		in.Close()
		res := r.wait()
		if res.code != 0 || !strings.Contains(res.stdout(), line) || !strings.Contains(res.stderr, why) || why == "" && res.stderr != "" {
			t.Errorf("exit code %d\nstdout: %s\nstderr: %s", res.code, res.stdout(), res.stderr)
		}
	}
}
