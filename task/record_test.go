package task_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// The fields that every reader of our JSON may count on.
var promised = []string{"task_id", "run_id", "task_type", "status", "idle", "awaiting_approval", "paused", "backgrounded",
	"name", "description", "session_id", "parent_id", "tool_use_id", "agent_type", "model", "command", "cwd", "start_time",
	"end_time", "output_file", "output_bytes", "exit_code", "cause", "progress", "usage", "error"}

// What else a record shows. A new field belongs here, so that it is a decision
// and no accident.
var further = []string{"owner_id", "asked_name", "stopping", "keep", "notified", "depth", "prompt", "create_time", "timeout_ms", "process", "checkpoint",
	"questions", "last_answer", "priority", "pool", "survivors", "notes", "worktree", "permission_mode", "on", "worker",
	"key", "silent", "team", "teleported_from", "budget", "on_end", "earlier_usage", "resumes", "tty", "last_heard", "command_bytes", "host_stopped", "task_traits", "seen", "sandbox", "parked", "schedule", "retries", "attempts", "quote", "waits_for", "left_tasks", "made"}

// always are the fields that are there although there is nothing to say yet.
var always = []string{"task_id", "run_id", "task_type", "status", "idle", "awaiting_approval", "paused", "backgrounded",
	"notified", "name", "description", "session_id", "depth", "create_time", "start_time", "end_time", "output_bytes", "exit_code", "cause"}

// everything is a value in which each exported field that JSON shows is set.
func everything(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		everything(t, v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(created))
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				everything(t, v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		everything(t, v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		t.Fatalf("no value for a %s", v.Type())
	}
}

func keys(t *testing.T, v any) []string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func wantKeys(t *testing.T, got []string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("fields are\n %v\nwant\n %v", got, want)
	}
}

func TestRecordJSON(t *testing.T) {
	var r task.Record
	everything(t, reflect.ValueOf(&r).Elem())

	t.Run("full", func(t *testing.T) { wantKeys(t, keys(t, r), append(slices.Clone(promised), further...)...) })
	t.Run("empty", func(t *testing.T) { wantKeys(t, keys(t, task.Record{}), always...) })
	t.Run("cause", func(t *testing.T) { wantKeys(t, keys(t, r.Cause), "actor", "reason", "signal", "detail") })
	t.Run("progress", func(t *testing.T) {
		wantKeys(t, keys(t, r.Progress), "tool_use_count", "token_count", "last_activity", "recent_activities", "message", "summary",
			"phase", "steps", "monitor", "mcp_task", "remote", "cost_usd", "parked_until")
	})
	t.Run("usage", func(t *testing.T) {
		wantKeys(t, keys(t, r.Usage), "total_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens",
			"cache_creation_input_tokens", "tool_uses", "turns", "duration_ms", "cost_usd", "tokens_unknown")
	})
	t.Run("unknown", func(t *testing.T) {
		data, err := json.Marshal(task.Record{})
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"exit_code", "cause", "start_time", "end_time"} {
			if m[k] != nil {
				t.Errorf("%s is %v before it is known, want null", k, m[k])
			}
		}
	})
	t.Run("back", func(t *testing.T) {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var got task.Record
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("read back:\n got %+v\nwant %+v", got, r)
		}
	})
}

func TestRecordTimes(t *testing.T) {
	r := record(t, task.Completed)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	if m["start_time"] != "2026-05-04T10:00:01Z" || m["end_time"] != "2026-05-04T10:01:00Z" {
		t.Errorf("times are %v and %v, want RFC 3339 in UTC", m["start_time"], m["end_time"])
	}
}

func TestEventJSON(t *testing.T) {
	wantKeys(t, keys(t, task.Event{}), "seq", "verb", "at", "task")
}

func TestReceiptJSON(t *testing.T) {
	var r task.Receipt
	everything(t, reflect.ValueOf(&r).Elem())
	wantKeys(t, keys(t, r), "stopped", "survivors")
	wantKeys(t, keys(t, r.Stopped[0]), "task_id", "status", "cause", "signals", "ended_after_ms")
	wantKeys(t, keys(t, r.Stopped[0].Signals[0]), "signal", "after_ms")
	wantKeys(t, keys(t, r.Survivors[0]), "task_id", "pid", "command", "why", "start", "boot")
}

func TestProgressAdd(t *testing.T) {
	p := task.Progress{Summary: "so far", TokenCount: 9}
	var steps []task.Progress
	for i := range 7 {
		steps = append(steps, p)
		p = p.Add(task.Activity{ToolName: fmt.Sprint(i)})
	}
	var got []string
	for _, a := range p.RecentActivities {
		got = append(got, a.ToolName)
	}
	if want := []string{"2", "3", "4", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("recent activities are %v, want %v", got, want)
	}
	if p.LastActivity.ToolName != "6" || p.ToolUseCount != 7 || p.Summary != "so far" || p.TokenCount != 9 {
		t.Errorf("progress is %+v", p)
	}
	// Two that go on from the same value do not share what they add.
	q := steps[3]
	x, y := q.Add(task.Activity{ToolName: "x"}), q.Add(task.Activity{ToolName: "y"})
	if got := x.RecentActivities[3].ToolName + y.RecentActivities[3].ToolName; got != "xy" {
		t.Errorf("two branches end in %q, want xy", got)
	}
	// Earlier values are in the hands of readers and must not move.
	for i, s := range steps {
		if s.ToolUseCount != i {
			t.Errorf("step %d has %d tool uses", i, s.ToolUseCount)
		}
		if n := len(s.RecentActivities); n > 0 && s.RecentActivities[n-1].ToolName != fmt.Sprint(i-1) {
			t.Errorf("step %d was altered: %+v", i, s.RecentActivities)
		}
	}
}

func TestBackground(t *testing.T) {
	for _, s := range task.Statuses() {
		for _, flag := range []bool{false, true} {
			want := flag && !s.Terminal()
			if got := (task.Record{Status: s, Backgrounded: flag}).Background(); got != want {
				t.Errorf("%s, backgrounded %v: %v, want %v", s, flag, got, want)
			}
		}
	}
}

func TestDuration(t *testing.T) {
	if d := record(t, task.Pending).Duration(ended); d != 0 {
		t.Errorf("a pending task has worked for %v", d)
	}
	if d := record(t, task.Running).Duration(begun.Add(time.Second)); d != time.Second {
		t.Errorf("got %v, want 1s", d)
	}
	if d := record(t, task.Completed).Duration(ended.Add(time.Hour)); d != ended.Sub(begun) {
		t.Errorf("an ended task goes on working: %v", d)
	}
	if d := record(t, task.Running).Duration(created); d != 0 {
		t.Errorf("a clock that went back gives %v", d)
	}
}

func TestActivity(t *testing.T) {
	at := func(p *task.Progress) task.Record { return task.Record{Progress: p} }
	for want, r := range map[string]task.Record{
		"idle":              {Idle: true, Progress: &task.Progress{Message: "x"}},
		"working":           at(nil),
		"Reading the tests": at(&task.Progress{Message: "Reading the tests", LastActivity: &task.Activity{ToolName: "Read"}}),
		"Read":              at(&task.Progress{LastActivity: &task.Activity{ToolName: "Read"}}),
	} {
		if got := r.Activity(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

var (
	created = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	begun   = created.Add(time.Second)
	ended   = created.Add(time.Minute)
)

// record is a task that was created, began and ended at these times, as far as the
// status says.
func record(_ testing.TB, s task.Status) task.Record {
	r := task.Record{ID: "b00000001", Run: "run_1", Kind: task.LocalBash, Status: s, CreateTime: created}
	if s != task.Pending {
		r.StartTime = &begun
	}
	if s.Terminal() {
		r.EndTime = &ended
	}
	return r
}

func TestWhy(t *testing.T) {
	for want, r := range map[string]task.Record{
		"": {Status: task.Completed, Cause: &task.Cause{Reason: task.ReasonDone}},
		"could not start nosuch: not found in PATH": {Status: task.Failed, Error: "start nosuch: not found in PATH",
			Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonStart}},
		"could not start: open output: no space left on device": {Status: task.Failed, Error: "open output: no space left on device",
			Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonStart}},
		"ended by SIGSEGV":               {Status: task.Failed, Cause: &task.Cause{Reason: task.ReasonSignal, Signal: "SIGSEGV"}},
		"its time limit of 1m30s passed": {Status: task.Failed, TimeoutMS: 90_000, Cause: &task.Cause{Reason: task.ReasonTimeout}},
		"stopped by the user":            {Status: task.Killed, Cause: &task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}},
		"stopped by Drover: too loud":    {Status: task.Killed, Cause: &task.Cause{Actor: task.ByRuntime, Reason: task.ReasonStopped, Detail: "too loud"}},
		"its host died":                  {Status: task.Killed, Cause: &task.Cause{Actor: task.ByKeeper, Reason: task.ReasonHostLost}},
		"out of memory":                  {Status: task.Failed, Cause: &task.Cause{Reason: task.ReasonOutOfMemory}},
	} {
		if got := r.Why(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	plain := task.Record{Status: task.Failed, Error: "exit code 3", Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}}
	if got := plain.Why(); got != "" {
		t.Errorf("of an exit code: %q", got)
	}
}

func TestOutcome(t *testing.T) {
	killed := task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped, Detail: "enough"}
	for _, c := range []struct {
		want string
		r    task.Record
	}{
		{"", task.Record{Status: task.Running}},
		{"completed", task.Record{Status: task.Completed, ExitCode: new(0)}},
		{"failed (exit code 2)", task.Record{Status: task.Failed, ExitCode: new(2), Error: "exit code 2", Cause: &task.Cause{Reason: task.ReasonExit}}},
		{"failed: ended by SIGSEGV", task.Record{Status: task.Failed, Cause: &task.Cause{Reason: task.ReasonSignal, Signal: "SIGSEGV"}}},
		{"failed: ended by SIGKILL: for want of memory", task.Record{Status: task.Failed,
			Cause: &task.Cause{Reason: task.ReasonSignal, Signal: "SIGKILL", Detail: "for want of memory"}}},
		{"failed: disk full", task.Record{Status: task.Failed, Error: "disk full"}},
		{"stopped by the user: enough", task.Record{Status: task.Killed, ExitCode: new(143), Cause: &killed}},
		{"stopped: its host died", task.Record{Status: task.Killed, Cause: &task.Cause{Reason: task.ReasonHostLost}}},
	} {
		if got := c.r.Outcome(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
