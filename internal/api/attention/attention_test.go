package attention_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/task"
)

var now = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	at := now.Add(-d)
	return &at
}

func failed(id task.ID, change func(*task.Record)) task.Record {
	r := task.Record{ID: id, Run: "run_" + task.RunID(id), Kind: task.LocalBash, Status: task.Failed, Backgrounded: true,
		EndTime: ago(time.Minute), Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}, Error: "exit code 3"}
	if change != nil {
		change(&r)
	}
	return r
}

func ids(items []attention.Item) (out []string) {
	for _, i := range items {
		out = append(out, i.ID)
	}
	return out
}

// What holds up most stands first, and each item says how it is answered.
func TestItemsOrder(t *testing.T) {
	until := now.Add(time.Minute)
	f := attention.Facts{
		Session: "s00000001", Problem: "the disk is full",
		Tasks: []task.Record{
			failed("b0failed0", nil),
			failed("b0newer00", func(r *task.Record) { r.EndTime = ago(time.Second) }),
			{ID: "a0parked0", Kind: task.LocalAgent, Status: task.Running, Backgrounded: true,
				Progress: &task.Progress{ParkedUntil: &until}},
			{ID: "b0stalled", Kind: task.LocalBash, Status: task.Running, Backgrounded: true, TTY: true, Progress: &task.Progress{}},
			{ID: "r0plan000", Kind: task.RemoteAgent, Status: task.Running, Backgrounded: true,
				Progress: &task.Progress{Phase: "plan_ready"}},
			{ID: "a0asks000", Kind: task.LocalAgent, Status: task.Running, Backgrounded: true},
			{ID: "a0above00", Kind: task.LocalAgent, Status: task.Running, Backgrounded: true},
			{ID: "a0below00", Kind: task.LocalAgent, Status: task.Running, Parent: "a0above00"},
		},
		Questions: []task.Question{
			{ID: "q0first00", Task: "a0asks000", Tool: "Bash", At: *ago(time.Hour)},
			{ID: "q0urgent0", Task: "a0asks000", Tool: "Bash", At: *ago(time.Second), Until: until},
			{ID: "q0blocks0", Task: "a0below00", Tool: "Bash", At: *ago(time.Second)},
		},
		Waits: func(r task.Record) (string, time.Time, bool) {
			return "Overwrite? [y/N]", *ago(time.Hour), r.ID == "b0stalled"
		},
	}
	items, more := attention.Items(f, now)
	want := []string{"s00000001", "q0blocks0", "q0urgent0", "q0first00", "r0plan000", "b0stalled", "a0parked0", "b0newer00", "b0failed0"}
	if got := ids(items); !slices.Equal(got, want) || more != 0 {
		t.Fatalf("got %v and %d more, want %v", got, more, want)
	}
	if items[1].Blocks != 2 || items[1].Request == nil {
		t.Errorf("the question that holds up two tasks: %+v", items[1])
	}
	for _, i := range items {
		if len(i.Answer) == 0 || i.Why == "" {
			t.Errorf("%s says not what to do: %+v", i.ID, i)
		}
	}
	if got := items[5].Answer[0]; got != "drover send b0stalled TEXT" {
		t.Errorf("a stalled terminal is answered by %q", got)
	}
	if again, _ := attention.Merge(items[4:], items[:4]); !reflect.DeepEqual(again, items) {
		t.Errorf("merged: %v", ids(again))
	}
}

// A failure is shown until somebody who counts has seen it.
func TestItemsFailures(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*task.Record)
		shown  bool
	}{
		"failed":     {nil, true},
		"seen":       {func(r *task.Record) { r.Seen = true }, false},
		"foreground": {func(r *task.Record) { r.Backgrounded = false }, false},
		"silent":     {func(r *task.Record) { r.Silent = true }, false},
		"old":        {func(r *task.Record) { r.EndTime = ago(attention.MaxAge + time.Second) }, false},
		"completed":  {func(r *task.Record) { r.Status = task.Completed }, false},
		"stopped by the user": {func(r *task.Record) {
			r.Status, r.Cause = task.Killed, &task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}
		}, false},
		"closed": {func(r *task.Record) {
			r.Status, r.Cause = task.Killed, &task.Cause{Actor: task.ByRuntime, Reason: task.ReasonClosing}
		}, false},
		"host lost": {func(r *task.Record) {
			r.Status, r.Cause = task.Killed, &task.Cause{Actor: task.ByKeeper, Reason: task.ReasonHostLost}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			items, _ := attention.Items(attention.Facts{Tasks: []task.Record{failed("b00000001", test.change)}}, now)
			if shown := len(items) == 1 && items[0].Kind == attention.Failure; shown != test.shown {
				t.Errorf("got %v", items)
			}
		})
	}
}

// A list is bounded, and says what it leaves out.
func TestItemsBound(t *testing.T) {
	f := attention.Facts{}
	for range attention.MaxItems + 7 {
		f.Tasks = append(f.Tasks, failed(task.NewID(task.LocalBash), nil))
	}
	if items, more := attention.Items(f, now); len(items) != attention.MaxItems || more != 7 {
		t.Errorf("%d items and %d more", len(items), more)
	}
}
