package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// job is a task.
type job struct {
	s         *Server
	id        string
	w         Work
	token     any
	created   time.Time
	questions chan question
	done      chan struct{} // closed when it is over

	mu      sync.Mutex
	status  string // guarded by mu, like the rest
	message string
	updated time.Time
	answers []string
	broke   int
	open    map[string]chan json.RawMessage // questions by the extension
}

// question waits for somebody who waits for the result.
type question struct {
	frame func(id string) []byte
	reply chan json.RawMessage
	over  chan struct{} // closed when nobody waits for the answer any more
}

func (j *job) wire() map[string]any {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := map[string]any{"taskId": j.id, "status": j.status, "createdAt": j.created.Format(time.RFC3339Nano),
		"lastUpdatedAt": j.updated.Format(time.RFC3339Nano), "ttl": nil, "pollInterval": max(j.w.Poll, 10)}
	if j.message != "" {
		m["statusMessage"] = j.message
	}
	if j.w.TTL > 0 {
		m["ttl"] = j.w.TTL
	}
	return m
}

func (j *job) notification() []byte {
	return encode(map[string]any{"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": j.wire()})
}

func ended(status string) bool {
	return status == "completed" || status == "failed" || status == "cancelled"
}

func (j *job) over() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// set moves the task. One that is over stays so.
func (j *job) set(status, message string) {
	j.mu.Lock()
	if ended(j.status) {
		j.mu.Unlock()
		return
	}
	j.status, j.message, j.updated = status, message, time.Now().UTC()
	if ended(status) {
		close(j.done)
	}
	j.mu.Unlock()
	times := 1
	switch {
	case j.w.Quiet:
		times = 0
	case j.w.Twice:
		times = 2
	}
	for range times {
		j.s.tell(j.notification())
	}
}

// run is the work.
func (j *job) run() {
	for i := range j.w.Steps {
		j.s.tell(encode(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress",
			"params": map[string]any{"progressToken": j.token, "progress": i + 1, "total": j.w.Steps}}))
	}
	for _, text := range j.w.Say {
		j.set("working", text)
	}
	var asking sync.WaitGroup
	for i := range j.w.Ask {
		if !j.w.Together {
			j.ask(i)
			continue
		}
		asking.Go(func() { j.ask(i) })
	}
	asking.Wait()
	if j.w.Hold {
		select {
		case <-j.s.free:
		case <-j.done:
		case <-j.s.quit:
		}
	}
	switch j.w.Fail {
	case "":
		j.set("completed", "")
	case "cancelled":
		j.set("cancelled", "the server is out of paper")
	default:
		j.set("failed", "it went wrong")
	}
}

// ask asks, and waits for the answer.
func (j *job) ask(i int) {
	if j.s.o.Extension {
		j.askExtended(i)
		return
	}
	j.set("input_required", fmt.Sprintf("question %d", i+1))
	q := question{reply: make(chan json.RawMessage, 8), over: make(chan struct{}), frame: func(id string) []byte {
		return encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": map[string]any{
			"message": fmt.Sprintf("What is name %d?", i+1),
			"requestedSchema": map[string]any{"type": "object", "required": []string{"name"},
				"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": 2}}},
			"_meta": map[string]any{"io.modelcontextprotocol/related-task": map[string]any{"taskId": j.id}}}})
	}}
	defer close(q.over)
	select {
	case j.questions <- q:
	case <-j.done:
		return
	case <-j.s.quit:
		return
	}
	select {
	case raw := <-q.reply:
		j.note(raw)
		j.set("working", "goes on")
	case <-j.done:
	case <-j.s.quit:
	}
}

func (j *job) note(raw json.RawMessage) {
	var a struct {
		Result struct {
			Action  string         `json:"action"`
			Content map[string]any `json:"content"`
		} `json:"result"`
	}
	_ = json.Unmarshal(raw, &a) // an error is no answer
	j.mu.Lock()
	defer j.mu.Unlock()
	text := a.Result.Action
	if name, ok := a.Result.Content["name"]; ok {
		text += fmt.Sprintf(" %v", name)
	}
	j.answers = append(j.answers, text)
}

// result waits for the end, and asks what there is to ask meanwhile. What a client
// that goes has not answered is asked again on the next stream.
func (j *job) result(ctx context.Context, push func([]byte)) (any, *fault) {
	j.mu.Lock()
	breaks := j.broke < j.w.Break
	if breaks {
		j.broke++
	}
	j.mu.Unlock()
	if breaks {
		return broken{}, nil
	}
	var open []question
	for {
		select {
		case q := <-j.questions:
			open = append(open, q)
			push(j.send(q))
		case <-ctx.Done():
			for _, q := range open {
				select {
				case <-q.over:
				default:
					j.questions <- q
				}
			}
			return broken{}, nil
		case <-j.done:
			return j.outcome()
		case <-j.s.quit:
			return broken{}, nil
		}
	}
}

func (j *job) send(q question) []byte {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.s.next++
	id := fmt.Sprintf("ask-%d", j.s.next)
	j.s.asked[`"`+id+`"`] = q.reply
	return q.frame(id)
}

func (j *job) outcome() (any, *fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.given()
}

// given is what the task gave. The caller holds mu.
func (j *job) given() (any, *fault) {
	switch {
	case j.status == "cancelled" || j.w.Unreadable:
		return nil, &fault{Code: -32603, Message: "there is no result"}
	case j.w.Fail == "protocol":
		return nil, &fault{Code: -32000, Message: "the machine is on fire"}
	case j.w.Fail == "tool":
		return content("the paper is torn\nand wet", true), nil
	}
	return content(strings.Join(append([]string{j.w.Text}, j.answers...), "\n"), false), nil
}
