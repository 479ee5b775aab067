package demo

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// boats is the MCP server of the tour: its tool folds a paper boat, which takes a
// while and is a task of the server. It speaks as much of revision 2025-11-25 over
// streamable HTTP as that needs. Where a boat is follows from the time, so nothing of
// it runs.
type boats struct {
	version string // of Drover; never changes

	mu    sync.Mutex
	begun map[string]time.Time // by task; guarded by mu, like the next
	sunk  map[string]bool      // those that were cancelled
}

func newBoats(version string) *boats {
	return &boats{version: version, begun: map[string]time.Time{}, sunk: map[string]bool{}}
}

// foldTime is how long each of the folds takes.
const foldTime = 900 * time.Millisecond

func folds() []string { return []string{"folds the hat", "pulls it to a square", "turns up the bow"} }

// boatBytes bounds a request.
const boatBytes = 64 << 10

type boatMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Task string `json:"taskId"`
	} `json:"params"`
}

// ServeHTTP implements [http.Handler].
func (b *boats) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed) // it tells nothing by itself
		return
	}
	var m boatMessage
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, boatBytes)).Decode(&m); err != nil {
		http.Error(w, "this is no message", http.StatusBadRequest)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	if result, err := b.answer(r, m); err != nil {
		answer["error"] = map[string]any{"code": -32602, "message": err.Error()}
	} else {
		answer["result"] = result
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // who has gone needs no answer
}

func (b *boats) answer(r *http.Request, m boatMessage) (map[string]any, error) {
	switch m.Method {
	case "initialize":
		return map[string]any{"protocolVersion": "2025-11-25",
			"serverInfo": map[string]any{"name": "tour", "version": b.version},
			"capabilities": map[string]any{
				"tools": struct{}{},
				"tasks": map[string]any{
					"cancel":   struct{}{},
					"requests": map[string]any{"tools": map[string]any{"call": struct{}{}}},
				},
			}}, nil
	case "ping":
		return map[string]any{}, nil
	case "tools/list":
		return map[string]any{"tools": []any{map[string]any{"name": "fold", "description": "Folds a paper boat.",
			"inputSchema": map[string]any{"type": "object"},
			"execution":   map[string]any{"taskSupport": "required"}}}}, nil
	case "tools/call":
		return map[string]any{"task": b.begin()}, nil
	}
	state, ok := b.state(m.Params.Task)
	if !ok {
		return nil, fmt.Errorf("there is no task %.40q", m.Params.Task)
	}
	switch m.Method {
	case "tasks/get":
		return state, nil
	case "tasks/cancel":
		b.mu.Lock()
		b.sunk[m.Params.Task] = true
		b.mu.Unlock()
		state, _ = b.state(m.Params.Task)
		return state, nil
	case "tasks/result":
		return b.result(r, m.Params.Task)
	}
	return nil, fmt.Errorf("there is no method %.40q", m.Method)
}

func (b *boats) begin() map[string]any {
	id := rand.Text()
	b.mu.Lock()
	b.begun[id] = time.Now()
	b.mu.Unlock()
	state, _ := b.state(id)
	return state
}

// state is a task as the protocol tells of it.
func (b *boats) state(id string) (map[string]any, bool) {
	b.mu.Lock()
	begun, ok := b.begun[id]
	sunk := b.sunk[id]
	b.mu.Unlock()
	now := time.Now()
	at := map[string]any{"taskId": id, "status": "working", "createdAt": begun.UTC().Format(time.RFC3339Nano),
		"lastUpdatedAt": now.UTC().Format(time.RFC3339Nano), "ttl": nil, "pollInterval": 300}
	done := int(now.Sub(begun) / foldTime)
	switch {
	case sunk:
		at["status"] = "cancelled"
	case done < len(folds()):
		at["statusMessage"] = folds()[done]
	default:
		at["status"] = "completed"
	}
	return at, ok
}

// result waits for the boat.
func (b *boats) result(r *http.Request, id string) (map[string]any, error) {
	b.mu.Lock()
	left := time.Until(b.begun[id].Add(time.Duration(len(folds())) * foldTime))
	b.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": "a paper boat"}},
		"_meta": map[string]any{"io.modelcontextprotocol/related-task": map[string]any{"taskId": id}}}, nil
}
