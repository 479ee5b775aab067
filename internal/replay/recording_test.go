package replay

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

func written(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, Head{Session: "s1", Folder: "/work/here", State: "/state/s1", Prompt: []byte(`{}`)}, nil)
	for _, e := range entries {
		w.Add(e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func some() []Entry {
	return []Entry{
		{Kind: CallEntry, Agent: "s1", Call: 1, Request: &Request{Digest: "d"}, Chunks: []Chunk{{MS: 3, Text: "hel"}},
			Reply: &agent.Reply{Blocks: []agent.Block{agent.TextBlock("hello")}, StopReason: "end_turn"}},
		{Kind: OutputEntry, Task: "b1", Data: []byte("a\x00b")},
	}
}

func TestRead(t *testing.T) {
	file := written(t, some()...)
	r, err := Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := some()
	want[0].N, want[1].N = 1, 2
	if !reflect.DeepEqual(r.Entries, want) || r.Head.Folder != "/work/here" || r.Head.About != About {
		t.Errorf("read %+v", r)
	}
	for n := range len(file) {
		if _, err := Read(bytes.NewReader(file[:n])); err == nil {
			t.Fatalf("the first %d of %d bytes were read as a whole recording", n, len(file))
		}
	}
}

func TestRefused(t *testing.T) {
	file := string(written(t, some()...))
	for name, c := range map[string]struct {
		file string
		want error
	}{
		"empty":   {"", ErrNotRecording},
		"text":    {"hello\nworld\n", ErrNotRecording},
		"cut":     {file[:strings.LastIndex(file, `{"end"`)], ErrCut},
		"changed": {strings.Replace(file, "hello", "hullo", 1), ErrChanged},
		"dropped": {strings.Join(append(strings.SplitAfter(file, "\n")[:1], strings.SplitAfter(file, "\n")[2:]...), ""), ErrChanged},
		"longer":  {file + "{}\n", ErrChanged},
		"newer":   {strings.Replace(file, `"v":2`, `"v":3`, 1), ErrNewer},
		"older":   {strings.Replace(file, `"v":2`, `"v":1`, 1), ErrOlder},
	} {
		if _, err := Read(strings.NewReader(c.file)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(written(f, some()...))
	f.Add([]byte(`{"format":"drover-recording","v":2}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		if got := Compare(r, r); len(got) != 0 {
			t.Errorf("a recording differs from itself: %+v", got)
		}
	})
}

func TestNormalised(t *testing.T) {
	a := NamesOf(Head{Session: "saaaaaaaa", Folder: "/work/a", State: "/state/a/saaaaaaaa"})
	b := NamesOf(Head{Session: "sbbbbbbbb", Folder: "/other", State: "/x/sbbbbbbbb"})
	one := a.Text("ran 1.5s in /work/a, pid 12, at 2026-11-23T15:00:00Z, see /state/a/saaaaaaaa/t of saaaaaaaa")
	two := b.Text("ran 300ms in /other, pid 99, at 2026-11-24T01:02:03.5Z, see /x/sbbbbbbbb/t of sbbbbbbbb")
	if one != two {
		t.Errorf("%q\n%q", one, two)
	}
}

func TestCompare(t *testing.T) {
	code := 3
	events := func(code *int, at time.Time) *Recording {
		r := task.Record{ID: "b1", Session: "s1", Kind: task.LocalBash, Status: task.Failed, ExitCode: code}
		return &Recording{Head: Head{Session: "s1"}, Entries: []Entry{
			{Kind: EventEntry, Event: &task.Event{Verb: task.Report, At: at, Task: r}},
			{Kind: EventEntry, Event: &task.Event{Verb: task.Fail, At: at, Task: r}},
		}}
	}
	was := events(&code, time.Unix(1, 0))
	if got := Compare(was, events(&code, time.Unix(9, 0))); len(got) != 0 {
		t.Errorf("times count: %+v", got)
	}
	other := 4
	got := Compare(was, events(&other, time.Unix(1, 0)))
	if len(got) != 1 || !strings.Contains(got[0].Was, "exit 3") || !strings.Contains(got[0].Has, "exit 4") {
		t.Errorf("another exit code is %+v", got)
	}
	if got = Compare(was, &Recording{Head: Head{Session: "s1"}}); len(got) != 1 || got[0].Has != "" {
		t.Errorf("a missing event is %+v", got)
	}
}
