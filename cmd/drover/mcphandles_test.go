package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestMCPHandles has clients hold tasks by handles of the protocol.
func TestMCPHandles(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		"v1": mcpHandlesV1, "v1 ttl": mcpHandlesTTL, "v2": mcpHandlesV2, "v2 question": mcpHandlesQuestion, "v1 question": mcpHandlesAsk,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// ask sends a request and returns the answer to it: its result, or its error.
func (s *rawServer) ask(id, method string, params object) (result, failed object) {
	s.t.Helper()
	raw, err := json.Marshal(object{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		s.t.Fatal(err)
	}
	s.send(string(raw) + "\n")
	o := s.next(`"id":"` + id + `"`)
	result, _ = o["result"].(map[string]any)
	failed, _ = o["error"].(map[string]any)
	if result == nil && failed == nil {
		s.t.Fatalf("%s: %v", method, o)
	}
	return result, failed
}

// get is [rawServer.ask] for requests that must succeed.
func (s *rawServer) get(id, method string, params object) object {
	s.t.Helper()
	result, failed := s.ask(id, method, params)
	if failed != nil {
		s.t.Fatalf("%s: %v", method, failed)
	}
	return result
}

// refuses asks for what must be refused with a code.
func (s *rawServer) refuses(code float64, id, method string, params object) {
	s.t.Helper()
	if result, failed := s.ask(id, method, params); failed["code"] != code {
		s.t.Errorf("%s: %v, %v, want the code %v", method, result, failed, code)
	}
}

// kill ends the server as a crash would.
func (s *rawServer) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
}

func mcpHandlesV1(t *testing.T, p *place) {
	s := p.mcpRaw()
	s.send(mcpHello)
	hello := s.next(`"id":"hello"`)
	if got := fmt.Sprint(hello["result"].(map[string]any)["capabilities"].(map[string]any)["tasks"]); got != "map[cancel:map[] list:map[] requests:map[tools:map[call:map[]]]]" {
		t.Errorf("declared %s", got)
	}
	support := map[string]any{}
	for _, tool := range s.get("1", "tools/list", object{})["tools"].([]any) {
		tool := tool.(map[string]any)
		support[tool["name"].(string)] = tool["execution"]
	}
	if got := fmt.Sprint(support["task_run"], support["task_list"]); got != "map[taskSupport:optional] <nil>" {
		t.Errorf("support %s", got)
	}
	fifo := p.fifo("f")
	start := func(id, command string) string {
		made := s.get(id, "tools/call", object{"name": "task_run", "arguments": object{"command": command}, "task": object{"ttl": 600_000}})
		one, _ := made["task"].(map[string]any)
		if one["status"] != "working" || one["ttl"] != 600_000.0 || one["pollInterval"] == nil || len(one["taskId"].(string)) < 20 {
			t.Fatalf("made %v", made)
		}
		return one["taskId"].(string)
	}
	held, other := start("2", "cat f; exit 3"), start("3", "sleep 651")
	p.alive("sleep 651")
	s.kill()
	s = p.mcpRaw()
	s.send(mcpHello)
	s.next(`"id":"hello"`)
	if got := s.get("4", "tasks/get", object{"taskId": held}); got["status"] != "working" {
		t.Errorf("after a restart: %v", got)
	}
	if got := s.get("5", "tasks/cancel", object{"taskId": other}); got["status"] != "cancelled" || got["taskId"] != other {
		t.Errorf("cancelled: %v", got)
	}
	p.leaves(patience, "sleep 651")
	p.free(fifo)
	got := s.get("6", "tasks/result", object{"taskId": held})
	if rec := object(got["structuredContent"].(map[string]any)).task(); rec["status"] != "failed" || rec["exit_code"] != 3.0 || got["isError"] != true {
		t.Errorf("result %v", got)
	}
	if related := fmt.Sprint(got["_meta"]); !strings.Contains(related, held) {
		t.Errorf("related to %s", related)
	}
	if got := s.get("7", "tasks/get", object{"taskId": held}); got["status"] != "failed" {
		t.Errorf("at the end: %v", got)
	}
	if list, _ := s.get("8", "tasks/list", object{})["tasks"].([]any); len(list) != 2 {
		t.Errorf("listed %v", list)
	}
	s.refuses(-32602, "9", "tasks/cancel", object{"taskId": held})
	s.refuses(-32602, "10", "tasks/get", object{"taskId": "none"})
	s.refuses(-32602, "11", "tasks/result", object{"taskId": "../../x"})
	s.refuses(-32602, "12", "tasks/list", object{"cursor": "none"})
	s.refuses(-32601, "13", "tools/call", object{"name": "task_list", "arguments": object{}, "task": object{}})
	s.refuses(-32602, "14", "tools/call", object{"name": "task_run", "arguments": object{"command": "true"}, "task": object{"ttl": -1}})
	s.refuses(-32601, "15", "tasks/update", object{"taskId": held})
	s.leave()
}

// A task with a handle goes on without its client until its time to live is over.
func mcpHandlesTTL(t *testing.T, p *place) {
	s := p.mcpRaw()
	s.send(mcpHello)
	s.next(`"id":"hello"`)
	made := s.get("1", "tools/call", object{"name": "task_run", "arguments": object{"command": "sleep 652"}, "task": object{"ttl": 5000}})
	one, _ := made["task"].(map[string]any)
	id := one["taskId"]
	if id == nil {
		t.Fatalf("made %v", made)
	}
	s.leave()
	p.alive("sleep 652")
	p.leaves(patience, "sleep 652")
	s = p.mcpRaw()
	s.send(mcpHello)
	s.next(`"id":"hello"`)
	s.refuses(-32602, "2", "tasks/get", object{"taskId": id})
	s.leave()
}

// newest are the params of a request of revision 2026-07-28.
func newest(params, capabilities object) object {
	params["_meta"] = object{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": capabilities,
	}
	return params
}

func mcpHandlesV2(t *testing.T, p *place) {
	knows := object{"extensions": object{"io.modelcontextprotocol/tasks": object{}}}
	s := p.mcpRaw()
	found := s.get("1", "server/discover", newest(object{}, knows))
	if got := fmt.Sprint(found["capabilities"].(map[string]any)["extensions"]); !strings.Contains(got, "io.modelcontextprotocol/tasks") {
		t.Errorf("declared %s", got)
	}
	call := func(id, command string, background bool, capabilities object) object {
		return s.get(id, "tools/call", newest(object{"name": "task_run", "arguments": object{"command": command, "background": background}}, capabilities))
	}
	if got := call("2", "true", false, object{}); got["resultType"] != "complete" || got["taskId"] != nil {
		t.Errorf("a client without the extension gets %v", got)
	}
	if got := call("3", "true", true, knows); got["resultType"] != "complete" || got["taskId"] != nil {
		t.Errorf("a start in the background gives %v", got)
	}
	fifo := p.fifo("f")
	made := call("4", "cat f; exit 3", false, knows)
	if made["resultType"] != "task" || made["status"] != "working" || made["ttlMs"] == nil || made["pollIntervalMs"] == nil {
		t.Fatalf("made %v", made)
	}
	id := made["taskId"]
	other := call("5", "sleep 653", false, knows)["taskId"]
	s.kill()
	s = p.mcpRaw()
	if got := s.get("6", "tasks/get", newest(object{"taskId": id}, knows)); got["status"] != "working" || got["resultType"] != "complete" {
		t.Errorf("after a restart: %v", got)
	}
	p.alive("sleep 653")
	if got := s.get("7", "tasks/cancel", newest(object{"taskId": other}, knows)); got["resultType"] != "complete" || got["status"] != nil {
		t.Errorf("cancel: %v", got)
	}
	p.leaves(patience, "sleep 653")
	if got := s.get("8", "tasks/get", newest(object{"taskId": other}, knows)); got["status"] != "cancelled" {
		t.Errorf("cancelled: %v", got)
	}
	p.free(fifo)
	var got object
	if n := 0; !within(patience, func() bool {
		n++
		got = s.get(fmt.Sprint("get", n), "tasks/get", newest(object{"taskId": id}, knows))
		return got["status"] != "working"
	}) {
		t.Fatalf("never ended: %v", got)
	}
	res, _ := got["result"].(map[string]any)
	if got["status"] != "completed" || res["isError"] != true || !strings.Contains(fmt.Sprint(res["structuredContent"]), "exit_code:3") {
		t.Errorf("ended: %v", got)
	}
	s.get("9", "tasks/cancel", newest(object{"taskId": id}, knows)) // harmless
	s.refuses(-32021, "10", "tasks/get", newest(object{"taskId": id}, object{}))
	s.refuses(-32602, "11", "tasks/get", newest(object{"taskId": "none"}, knows))
	s.refuses(-32601, "12", "tasks/result", newest(object{"taskId": id}, knows))
	s.refuses(-32601, "13", "tasks/list", newest(object{}, knows))
	s.leave()
}

// What an agent asks is answered through the task of the protocol.
func mcpHandlesQuestion(t *testing.T, p *place) {
	knows := object{"extensions": object{"io.modelcontextprotocol/tasks": object{}}, "elicitation": object{}}
	p.model(map[string][]step{"general-purpose": {calls("Bash", object{"command": "touch allowed"}), says("done")}})
	s := p.mcpRaw()
	id := s.get("1", "tools/call", newest(object{"name": "agent_run", "arguments": object{"prompt": "touch it", "background": false}}, knows))["taskId"]
	n := 0
	until := func(status string) (got object) {
		t.Helper()
		if !within(patience, func() bool {
			n++
			got = s.get(fmt.Sprint("get", n), "tasks/get", newest(object{"taskId": id}, knows))
			return got["status"] == status
		}) {
			t.Fatalf("never %s: %v", status, got)
		}
		return got
	}
	inputs, _ := until("input_required")["inputRequests"].(map[string]any)
	if raw := fmt.Sprint(inputs); len(inputs) != 1 || !strings.Contains(raw, "elicitation/create") || !strings.Contains(raw, "touch allowed") {
		t.Fatalf("asked %v", inputs)
	}
	blind := object{"extensions": knows["extensions"]}
	if got := s.get("2", "tasks/get", newest(object{"taskId": id}, blind)); got["status"] != "working" || got["inputRequests"] != nil {
		t.Errorf("a client without forms gets %v", got)
	}
	listed, _ := s.get("3", "tools/call", newest(object{"name": "task_list", "arguments": object{}}, blind))["structuredContent"].(map[string]any)
	if raw := fmt.Sprint(listed); !strings.Contains(raw, "touch allowed") || !strings.Contains(raw, "awaiting_approval:true") {
		t.Errorf("a client without forms reads %s", raw)
	}
	task := listed["tasks"].([]any)[0].(map[string]any)["task_id"].(string)
	waited := s.get("5", "tools/call", newest(object{"name": "task_wait", "arguments": object{"task_id": task, "timeout_seconds": 0.1}}, blind))
	if raw := fmt.Sprint(waited["structuredContent"]); !strings.Contains(raw, "awaiting_approval:true") || !strings.Contains(raw, "touch allowed") {
		t.Errorf("a wait that timed out says %s", raw)
	}
	answers := object{"unknown": object{"action": "accept"}}
	for key := range inputs {
		answers[key] = object{"action": "accept", "content": object{"decision": "allow"}}
	}
	s.get("4", "tasks/update", newest(object{"taskId": id, "inputResponses": answers}, knows))
	until("completed")
	if !p.there("allowed") {
		t.Error("it was not allowed")
	}
	if seen := p.good("inspect", task, "--json").stdout(); !strings.Contains(seen, `"mcp"`) {
		t.Errorf("who has answered: %s", seen)
	}
	s.leave()
}

// A client of 2025-11-25 is asked while it waits for the result.
func mcpHandlesAsk(t *testing.T, p *place) {
	p.model(map[string][]step{"general-purpose": {calls("Bash", object{"command": "touch allowed"}), says("done")}})
	s := p.mcpRaw()
	s.send(strings.Replace(mcpHello, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1))
	s.next(`"id":"hello"`)
	made := s.get("1", "tools/call", object{"name": "agent_run", "arguments": object{"prompt": "touch it"}, "task": object{}})
	id := made["task"].(map[string]any)["taskId"]
	raw, err := json.Marshal(object{"jsonrpc": "2.0", "id": "2", "method": "tasks/result", "params": object{"taskId": id}})
	if err != nil {
		t.Fatal(err)
	}
	s.send(string(raw) + "\n")
	form := s.next("elicitation/create")
	raw, err = json.Marshal(object{"jsonrpc": "2.0", "id": form["id"], "result": object{"action": "accept", "content": object{"decision": "allow"}}})
	if err != nil {
		t.Fatal(err)
	}
	s.send(string(raw) + "\n")
	got := s.next(`"id":"2"`)
	if !strings.Contains(fmt.Sprint(got["result"]), "done") || !p.there("allowed") {
		t.Errorf("result %v", got)
	}
	s.leave()
}
