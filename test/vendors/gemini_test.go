package vendors

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/drover-dev/drover/test/modeltest"
)

// gemini is a model server on loopback that speaks generateContent of the Gemini API (v1beta),
// streamed and not.
type gemini struct {
	*httptest.Server
	answer func(*modeltest.Request) modeltest.Answer

	mu   sync.Mutex
	seen []*modeltest.Request
}

func newGemini(answer func(*modeltest.Request) modeltest.Answer) *gemini {
	g := &gemini{answer: answer}
	g.Server = httptest.NewServer(g)
	return g
}

// Requests are those that came in so far.
func (g *gemini) Requests() []*modeltest.Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*modeltest.Request(nil), g.seen...)
}

// ServeHTTP answers a request.
func (g *gemini) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req := &modeltest.Request{Header: r.Header, Body: body}
	g.mu.Lock()
	g.seen = append(g.seen, req)
	g.mu.Unlock()
	_, method, _ := strings.Cut(r.URL.Path, ":")
	var content any
	switch method {
	case "countTokens":
		content = map[string]any{"totalTokens": 70}
	case "generateContent", "streamGenerateContent":
		a := g.answer(req)
		if a.Wait != nil {
			select {
			case <-a.Wait:
			case <-r.Context().Done():
				return
			}
		}
		content = generated(a)
	default:
		http.NotFound(w, r)
		return
	}
	data, err := json.Marshal(content)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if method == "streamGenerateContent" {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\r\n\r\n", data)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// generated is an answer as the API tells it.
func generated(a modeltest.Answer) any {
	var parts []any
	for _, b := range a.Blocks {
		if b.Type == "tool_use" {
			parts = append(parts, map[string]any{"functionCall": map[string]any{"name": b.Name, "args": b.Input}})
			continue
		}
		parts = append(parts, map[string]any{"text": b.Text})
	}
	return map[string]any{
		"candidates": []any{map[string]any{"content": map[string]any{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]any{"promptTokenCount": a.Usage.InputTokens, "candidatesTokenCount": a.Usage.OutputTokens,
			"totalTokenCount": a.Usage.InputTokens + a.Usage.OutputTokens},
	}
}
