package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// A question that the server wants to have as a task is one: it can be looked
// at, listed, and waited for or cancelled.
func TestMade(t *testing.T) {
	for mode, want := range map[string]map[string]string{
		"": {"end": `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"ID"}},"action":"accept"}`, "second get": `"status":"completed","taskId":"ID"`,
			"second cancel": "the task is over", "second result": `"action":"accept"`, "nobody": "there is no such task"},
		"cancels": {"end": `"status":"cancelled","taskId":"ID"`, "second get": `"status":"cancelled","taskId":"ID"`,
			"second cancel": "the task is over", "second result": "changed my mind", "nobody": "there is no such task"},
	} {
		t.Run(mode, func(t *testing.T) {
			c := live(t, use(t, pool(t, Config{}), stdioServer(t, mode)))
			answers := make(chan [2]string, 10)
			defer c.Listen("notifications/answered", func(raw json.RawMessage) {
				var p struct {
					ID     string
					Result json.RawMessage
				}
				if err := json.Unmarshal(raw, &p); err != nil {
					t.Error(err)
				}
				answers <- [2]string{p.ID, string(p.Result)}
			})()
			free := make(chan struct{})
			defer c.Serve("elicitation/create", func(ctx context.Context, _ json.RawMessage) (any, error) {
				if mode == "cancels" {
					<-ctx.Done()
					return nil, errors.New("changed my mind")
				}
				<-free
				return map[string]string{"action": "accept"}, nil
			})()
			text(t, c, "asktask")
			take := func(n int, want map[string]string) {
				t.Helper()
				for range n {
					got := <-answers
					id := c.made[0].id // there is one, and nobody takes it away
					if text := strings.ReplaceAll(got[1], id, "ID"); want[got[0]] == "" || !strings.Contains(text, want[got[0]]) {
						t.Errorf("%q is answered with %s, want %s", got[0], text, want[got[0]])
					}
				}
			}
			first := map[string]string{"made": `{"task":{"createdAt":"`, "first get": `"status":"working","taskId":"ID"`, "first list": `{"tasks":[{"createdAt":"`}
			if mode == "cancels" { // the cancel runs beside them
				delete(first, "first get")
				first["first get"] = `"taskId":"ID"`
				for key, text := range want {
					first[key] = text
				}
				take(len(first), first)
				return
			}
			take(len(first), first)
			close(free)
			take(len(want), want)
		})
	}
}

// No server can make us remember tasks without end.
func TestMadeBound(t *testing.T) {
	c := newConn(t.Context(), "x", limits{})
	old := &made{id: "old", done: make(chan struct{})}
	close(old.done)
	for i := range maxMade {
		if i == 1 {
			c.keep(old)
			continue
		}
		c.keep(&made{done: make(chan struct{})})
	}
	if !c.keep(&made{id: "new", done: make(chan struct{})}) || c.findMade("old") != nil || c.findMade("new") == nil {
		t.Error("the task that was over is not the one that went")
	}
	if c.keep(&made{done: make(chan struct{})}) || len(c.made) != maxMade {
		t.Errorf("%d tasks at work", len(c.made))
	}
}
