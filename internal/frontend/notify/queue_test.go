package notify

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/daypart"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)

func at(d time.Duration) time.Time { return noon.Add(d) }

func item(id string, kind attention.Kind, since time.Time) control.AttentionItem {
	return control.AttentionItem{ID: id, Kind: kind, Session: "s1", Since: since, Why: "permission for Bash"}
}

func ids(batch []control.AttentionItem) (out string) {
	for _, i := range batch {
		out += i.ID + " "
	}
	return out
}

// What goes before the wait is over is never announced, what stays is announced once, and what came
// meanwhile is in the same message.
func TestQueue(t *testing.T) {
	q := queue{after: 10 * time.Second, opened: noon}
	a, b := item("a", attention.Question, noon), item("b", attention.Stalled, at(time.Second))
	q.see([]control.AttentionItem{a}, noon)
	if batch, wait := q.take(noon); batch != nil || wait != 10*time.Second {
		t.Fatalf("at once: %s, wait %v", ids(batch), wait)
	}
	q.see(nil, at(5*time.Second))
	if batch, wait := q.take(at(20 * time.Second)); batch != nil || wait != 0 {
		t.Fatalf("an answered question: %s, wait %v", ids(batch), wait)
	}
	q.see([]control.AttentionItem{a}, at(20*time.Second))
	q.see([]control.AttentionItem{a, b}, at(29*time.Second))
	if batch, _ := q.take(at(30 * time.Second)); ids(batch) != "a b " {
		t.Fatalf("after the wait: %s", ids(batch))
	}
	q.see(nil, at(40*time.Second))
	q.see([]control.AttentionItem{a, b}, at(41*time.Second))
	if batch, _ := q.take(at(time.Hour)); batch != nil {
		t.Fatalf("twice: %s", ids(batch))
	}
}

// What needed the user before the session was opened is known.
func TestQueueKnown(t *testing.T) {
	q := queue{opened: noon}
	q.see([]control.AttentionItem{item("old", attention.Failure, at(-time.Minute)), item("new", attention.Question, at(time.Minute))},
		at(time.Minute))
	if batch, _ := q.take(at(time.Minute)); ids(batch) != "new " {
		t.Fatalf("first list: %s", ids(batch))
	}
	q.see([]control.AttentionItem{item("late", attention.Failure, at(-time.Hour))}, at(2*time.Minute))
	if batch, _ := q.take(at(2 * time.Minute)); ids(batch) != "late " {
		t.Fatalf("second list: %s", ids(batch))
	}
}

// In quiet hours nothing is announced; at their end, what is still there is.
func TestQueueQuiet(t *testing.T) {
	quiet, err := daypart.Parse("11:00-13:00")
	if err != nil {
		t.Fatal(err)
	}
	q := queue{after: 10 * time.Second, opened: noon, loud: quiet.Rest()}
	q.see([]control.AttentionItem{item("a", attention.Question, noon), item("b", attention.Failure, noon)}, noon)
	if batch, wait := q.take(at(time.Minute)); batch != nil || wait != 59*time.Minute {
		t.Fatalf("in quiet hours: %s, wait %v", ids(batch), wait)
	}
	q.see([]control.AttentionItem{item("b", attention.Failure, noon)}, at(30*time.Minute))
	if batch, _ := q.take(at(time.Hour)); ids(batch) != "b " {
		t.Fatalf("at the end of quiet hours: %s", ids(batch))
	}
}

func TestQueueBlocking(t *testing.T) {
	q := queue{opened: noon, blocking: true}
	q.see([]control.AttentionItem{item("a", attention.Failure, noon), item("b", attention.Plan, noon)}, noon)
	if batch, _ := q.take(noon); ids(batch) != "b " {
		t.Fatalf("blocking: %s", ids(batch))
	}
}

// What was announced is forgotten in the end, the oldest first.
func TestQueueBound(t *testing.T) {
	q := queue{opened: noon}
	for n := range 2 * maxSaid {
		q.mark(string(rune(n)))
	}
	if len(q.said) > maxSaid || len(q.order) > maxSaid {
		t.Fatalf("%d are remembered, in order %d", len(q.said), len(q.order))
	}
}
