package mcptest

import (
	"encoding/json"
	"fmt"
	"time"
)

// Revision 2026-07-28 without sessions, and its extension for tasks: the server makes a task
// of each call of work whose client declares that it understands it.

const (
	extension    = "io.modelcontextprotocol/tasks"
	capabilities = "io.modelcontextprotocol/clientCapabilities"
)

// extended answers a request by the extension. ok is false for one that is answered as
// by all revisions.
func (s *Server) extended(m message) (res any, bad *fault, ok bool) {
	var p struct {
		Name    string                     `json:"name"`
		Args    json.RawMessage            `json:"arguments"`
		ID      string                     `json:"taskId"`
		Answers map[string]json.RawMessage `json:"inputResponses"`
		Meta    map[string]json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p) // what is missing is refused below
	switch m.Method {
	case "server/discover":
		return map[string]any{
			"resultType": "complete", "supportedVersions": []string{"2026-07-28"},
			"capabilities": map[string]any{"tools": struct{}{}, "extensions": map[string]any{extension: struct{}{}}},
		}, nil, true
	case "initialize", "tasks/result", "tasks/list":
		return nil, &fault{Code: -32601, Message: "no method " + m.Method}, true
	case "tools/call":
		if p.Name != Tool {
			return nil, nil, false
		}
		res, bad := s.extendedCall(p.Args, declares(p.Meta[capabilities]))
		return res, bad, true
	case "tasks/get", "tasks/update", "tasks/cancel":
	default:
		return nil, nil, false
	}
	if !declares(p.Meta[capabilities]) {
		return nil, undeclared(), true
	}
	s.mu.Lock()
	j := s.tasks[p.ID]
	s.mu.Unlock()
	switch {
	case j == nil:
		return nil, &fault{Code: -32602, Message: "no task " + p.ID}, true
	case m.Method == "tasks/get":
		return j.extended("complete"), nil, true
	case m.Method == "tasks/update":
		bad := j.update(p.Answers)
		return map[string]any{"resultType": "complete"}, bad, true
	case j.w.RefuseCancel:
		return nil, &fault{Code: -32603, Message: "it cannot be stopped now"}, true
	case !j.w.IgnoreCancel:
		j.set("cancelled", "cancelled by the client")
	}
	return map[string]any{"resultType": "complete"}, nil, true
}

func declares(raw json.RawMessage) bool {
	var can struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	return json.Unmarshal(raw, &can) == nil && can.Extensions[extension] != nil
}

func undeclared() *fault {
	need := map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{extension: struct{}{}}}}
	return &fault{Code: -32021, Message: "the extension is not declared", Data: need}
}

func (s *Server) extendedCall(args json.RawMessage, declared bool) (any, *fault) {
	var w Work
	switch err := json.Unmarshal(args, &w); {
	case err != nil:
		return nil, &fault{Code: -32602, Message: err.Error()}
	case w.Refuse:
		return nil, &fault{Code: -32602, Message: "such work is not done here"}
	case w.Plain:
		return content(w.Text, w.Fail == "tool"), nil
	case !declared:
		return nil, undeclared()
	}
	j := s.begin(w, nil)
	res := j.extended("task")
	s.work.Go(j.run)
	return res, nil
}

// extended is the task on the wire of the extension. kind is that of the answer.
func (j *job) extended(kind string) map[string]any {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := map[string]any{"resultType": kind, "taskId": j.id, "status": j.status,
		"createdAt": j.created.Format(time.RFC3339Nano), "lastUpdatedAt": j.updated.Format(time.RFC3339Nano),
		"ttlMs": nil, "pollIntervalMs": max(j.w.Poll, 10)}
	if j.message != "" {
		m["statusMessage"] = j.message
	}
	if j.w.TTL > 0 {
		m["ttlMs"] = j.w.TTL
	}
	switch {
	case kind == "task" || j.w.Unreadable:
	case ended(j.status) && j.w.Fail == "protocol":
		m["error"] = fault{Code: -32000, Message: "the machine is on fire"}
	case j.status == "completed" || j.status == "failed":
		res, _ := j.given()
		m["status"], m["result"] = "completed", res
	case len(j.open) > 0 && !ended(j.status):
		inputs := map[string]any{}
		for key := range j.open {
			inputs[key] = j.asks(key)
		}
		m["status"], m["inputRequests"] = "input_required", inputs
	}
	return m
}

func (j *job) asks(key string) any {
	if j.w.AskOther != "" {
		return map[string]any{"method": j.w.AskOther, "params": map[string]any{}}
	}
	return map[string]any{"method": "elicitation/create", "params": map[string]any{
		"message": fmt.Sprintf("What is %s?", key),
		"requestedSchema": map[string]any{"type": "object", "required": []string{"name"},
			"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": 2}}}}}
}

// askExtended shows a question with the task, and waits for the answer.
func (j *job) askExtended(i int) {
	key, reply := fmt.Sprintf("name %d", i+1), make(chan json.RawMessage, 1)
	j.mu.Lock()
	j.open[key] = reply
	j.mu.Unlock()
	j.set("input_required", fmt.Sprintf("question %d", i+1))
	select {
	case raw := <-reply:
		j.note(encode(map[string]any{"result": raw}))
		j.set("working", "goes on")
	case <-j.done:
	case <-j.s.quit:
	}
}

// Answer answers all open questions as another client would, by the extension.
func (s *Server) Answer(name string) {
	for _, j := range s.jobs() {
		j.mu.Lock()
		answers := map[string]json.RawMessage{}
		for key := range j.open {
			answers[key] = encode(map[string]any{"action": "accept", "content": map[string]any{"name": name}})
		}
		j.mu.Unlock()
		j.update(answers)
	}
}

// update takes answers. The first update is refused as often as the work says.
func (j *job) update(answers map[string]json.RawMessage) *fault {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broke < j.w.RefuseUpdate {
		j.broke++
		return &fault{Code: -32603, Message: "busy"}
	}
	for key, answer := range answers {
		if reply := j.open[key]; reply != nil {
			delete(j.open, key)
			reply <- answer
		}
	}
	return nil
}
