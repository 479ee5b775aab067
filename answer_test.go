package drover_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/task"
)

// chooser is work of a program that asks which of two branches is meant.
type chooser struct{}

func (chooser) Kind() task.Kind             { return "chooser" }
func (chooser) Check(json.RawMessage) error { return nil }

func (chooser) Run(ctx context.Context, h task.Host) (task.Result, error) {
	reply, err := h.Ask(ctx, task.Question{
		Kind: task.Choice, Tool: "chooser", Reason: "Which branch?",
		Input: json.RawMessage(`{"questions":[{"question":"Which branch?","options":[{"label":"main"},{"label":"next"}]}]}`),
	})
	return task.Result{Text: reply.Text}, err
}

// firstLine holds what was written, and tells of the first write.
type firstLine struct {
	strings.Builder
	once    sync.Once
	written chan struct{}
}

func (l *firstLine) Write(p []byte) (int, error) {
	defer l.once.Do(func() { close(l.written) })
	return l.Builder.Write(p)
}

// A question that offers options is answered by a text: an answer without one is refused, and
// said to the log.
func TestAnswerChoice(t *testing.T) {
	for name, tt := range map[string]struct {
		reply      task.Reply
		want, logs string
	}{
		"text":    {task.Reply{Allow: true, Text: "next"}, "next", ""},
		"no text": {task.Reply{Allow: true}, "", "answered by a text"},
	} {
		t.Run(name, func(t *testing.T) {
			log := firstLine{written: make(chan struct{})}
			asked := make(chan task.Question, 1)
			rt, end := isolated(drover.Config{
				Answer: func(_ context.Context, q task.Question) (task.Reply, error) {
					asked <- q
					return tt.reply, nil
				},
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			r, err := rt.Start(t.Context(), chooser{}, task.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			if q := <-asked; q.Kind != task.Choice || q.Task != r.ID || !strings.Contains(string(q.Input), `"label":"next"`) {
				t.Errorf("asked %+v", q)
			}
			if tt.want != "" {
				if r, err = rt.Wait(t.Context(), r.ID); err != nil {
					t.Fatal(err)
				}
				if got, err := rt.Result(t.Context(), r.ID); got != tt.want || err != nil {
					t.Errorf("the task read %q, %v", got, err)
				}
			}
			if tt.logs != "" {
				<-log.written // the end of the runtime would end the answer too
			}
			end() // stops a task that still waits
			if !strings.Contains(log.String(), tt.logs) || tt.logs == "" && log.Len() > 0 {
				t.Errorf("the log says %q, want %q", log.String(), tt.logs)
			}
		})
	}
}
