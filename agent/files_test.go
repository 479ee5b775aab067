package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// long writes a conversation of several pieces of reading, with a summary after
// so many messages if that is not 0.
func long(t testing.TB, path string, n, boundary int) {
	t.Helper()
	tr, _ := open(t, path)
	body := strings.Repeat("words ", 500)
	var records []agent.Record
	for i := range n {
		role := agent.User
		if i%2 == 1 {
			role = agent.Assistant
		}
		r := say(role, fmt.Sprintf("m%d %s", i, strings.Repeat(body, i%4)))
		r.Mail = []int64{int64(i)}
		if role == agent.Assistant {
			r.Usage = &agent.Usage{InputTokens: int64(i), OutputTokens: 1}
		}
		if boundary > 0 && i == boundary {
			r = agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock(fmt.Sprintf("m%d sum", i))), Usage: &agent.Usage{OutputTokens: 1},
				Mail: []int64{int64(i)}, Boundary: &agent.Boundary{Trigger: "auto", Before: 77}}
		}
		records = append(records, r)
	}
	for some := range slices.Chunk(records, 100) {
		add(t, tr, some...)
	}
	_ = tr.Close()
}

func first(t testing.TB, m agent.Message) string {
	t.Helper()
	word, _, _ := strings.Cut(contents(t, m)[0], " ")
	return word
}

// However long a file is, and wherever it was summed up, it opens as what was
// said since, with all letters and totals.
func TestOpenFromTheLastSummary(t *testing.T) {
	for _, c := range []struct{ n, boundary int }{{0, 0}, {1, 0}, {1200, 0}, {1200, 1}, {1200, 600}, {1200, 1199}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.jsonl")
			long(t, path, c.n, c.boundary)
			tr, h := open(t, path)
			if len(h.Messages) != c.n-c.boundary || h.Skipped != 0 || len(h.Mail) != c.n || h.Meta.AgentName != "scout" {
				t.Fatalf("%d messages, %d letters, skipped %d, meta %+v", len(h.Messages), len(h.Mail), h.Skipped, h.Meta)
			}
			for i, m := range h.Messages {
				if want := fmt.Sprint("m", c.boundary+i); first(t, m) != want {
					t.Fatalf("message %d is %s", i, first(t, m))
				}
			}
			turns := c.n / 2
			if c.boundary%2 == 1 { // it stands where a reply would
				turns--
			}
			out := int64(turns)
			if c.boundary > 0 {
				out++
			}
			if h.Totals.Turns != turns || h.Totals.Usage.OutputTokens != out {
				t.Errorf("totals %+v, want %d turns", h.Totals, turns)
			}
			for i := range c.n {
				if !tr.Holds(int64(i)) {
					t.Fatalf("letter %d is forgotten", i)
				}
			}
			// The chain of lines goes on.
			add(t, tr, say(agent.User, "more"))
			_ = tr.Close()
			if _, h := open(t, path); len(h.Messages) != c.n-c.boundary+1 {
				t.Errorf("%d messages after one more", len(h.Messages))
			}
		})
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	long(t, path, 300, 290)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("garbage\n{\"entry_type\":\"system\",\"uuid\":\"x\"}\n{\"torn")
	_ = f.Close()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]int{0: 0, 1: 1, 50: 50, 299: 299, 300: 300, 1000: 300} {
		got, err := agent.Tail(link, n)
		if err != nil || len(got) != want {
			t.Fatalf("%d of %d: %v", len(got), n, err)
		}
		for i, r := range got {
			at := 300 - want + i
			if first(t, r.Message) != fmt.Sprint("m", at) || r.At.IsZero() || !slices.Contains(r.Mail, int64(at)) {
				t.Fatalf("record %d of %d is %s", i, n, first(t, r.Message))
			}
			if (r.Boundary != nil) != (at == 290) || r.Boundary != nil && *r.Boundary != (agent.Boundary{Trigger: "auto", Before: 77}) {
				t.Errorf("record %d: boundary %+v", at, r.Boundary)
			}
		}
	}
	if _, err := agent.Tail(filepath.Join(t.TempDir(), "none"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := agent.Tail(t.TempDir(), 1); err == nil {
		t.Error("read a folder")
	}
}

// What was read is not read again, also where it could not be any more, and a line that
// is being written is given when it is whole.
func TestReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	r := agent.Reading{Path: path}
	var got []string
	read := func(want ...string) {
		t.Helper()
		got = nil
		err := r.Next(func(one agent.Record) error { got = append(got, first(t, one.Message)); return nil })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if err := r.Next(nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before it is there: %v", err)
	}
	tr, _ := open(t, path)
	read()
	add(t, tr, say(agent.User, "m0"), say(agent.Assistant, "m1"))
	read("m0", "m1")
	read()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte("x"), len(data)-1), 0); err != nil {
		t.Fatal(err)
	}
	add(t, tr, say(agent.User, "m2"), agent.Record{Note: "for people"})
	read("m2")
	add(t, tr, say(agent.Assistant, "m3"))
	whole, _ := os.ReadFile(path)
	if err := os.Truncate(path, int64(len(whole)-5)); err != nil {
		t.Fatal(err)
	}
	read()
	if _, err := f.WriteAt(whole[len(whole)-5:], int64(len(whole)-5)); err != nil {
		t.Fatal(err)
	}
	if err := r.Next(func(agent.Record) error { return errFull }); !errors.Is(err, errFull) {
		t.Errorf("an error of who reads: %v", err)
	}
	read("m3")
}

func TestFork(t *testing.T) {
	for _, boundary := range []int{0, 250} {
		t.Run(fmt.Sprint(boundary), func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from.jsonl"), filepath.Join(dir, "to.jsonl")
			long(t, from, 300, boundary)
			old, was := open(t, from) // it may be in use
			defer old.Close()
			before, _ := os.ReadFile(from)
			meta := agent.Meta{SessionID: "s2", AgentName: "twin", AgentID: "a2"}
			if err := agent.ForkTranscript(from, to, meta); err != nil {
				t.Fatal(err)
			}
			if after, _ := os.ReadFile(from); !bytes.Equal(before, after) {
				t.Error("the old transcript was changed")
			}
			tr, h := open(t, to)
			same(t, h.Messages, was.Messages)
			if h.Totals != was.Totals || len(was.Mail) == 0 || len(h.Mail) != 0 || tr.Holds(7) || h.Skipped != 0 {
				t.Errorf("%+v, %d letters, skipped %d", h.Totals, len(h.Mail), h.Skipped)
			}
			if h.Meta.SessionID != "s2" || h.Meta.AgentName != "twin" || h.Meta.ForkedFrom != from {
				t.Errorf("meta %+v", h.Meta)
			}
			add(t, tr, say(agent.User, "more"))
			data, _ := os.ReadFile(to)
			if n := bytes.Count(data, []byte(`"format":1`)); n != 1 {
				t.Errorf("%d first lines", n)
			}
			if bytes.Contains(data[:len(data)-400], []byte(`"s1"`)) {
				t.Error("the old session's ID is in the copy")
			}
			if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if err := agent.ForkTranscript(from, to, meta); !errors.Is(err, os.ErrExist) {
				t.Errorf("over a file: %v", err)
			}
			if err := agent.ForkTranscript(filepath.Join(dir, "none"), filepath.Join(dir, "x"), meta); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("of nothing: %v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) != 2 {
				t.Errorf("%d files are left", len(left))
			}
		})
	}
}

// Of several that fork to one place at once one has it, and what it has put there stays:
// the others find a file there although there was none when they began.
func TestForksToOnePlace(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from.jsonl"), filepath.Join(dir, "to.jsonl")
	long(t, from, 3000, 0)
	won := make(chan string, 8)
	var all sync.WaitGroup
	for i := range cap(won) {
		all.Go(func() {
			name := fmt.Sprint("s", i)
			switch err := agent.ForkTranscript(from, to, agent.Meta{SessionID: name}); {
			case err == nil:
				won <- name
			case !errors.Is(err, os.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(won)
	first := <-won
	for other := range won {
		t.Errorf("%s and %s have both been told that the place is theirs", first, other)
	}
	if _, h := open(t, to); h.Meta.SessionID != first || len(h.Messages) != 3000 {
		t.Errorf("the file is of %q, not of %q, and holds %d messages", h.Meta.SessionID, first, len(h.Messages))
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestForkOfADamagedFile(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from.jsonl"), filepath.Join(dir, "to.jsonl")
	long(t, from, 4, 0)
	data, _ := os.ReadFile(from)
	data = append(data, "garbage\n"...)
	data = append(data, `{"entry_type":"user","uuid":"x","message":{"role":"user","content":[{"type":"text","text":"m4"}]}}`+"\n{\"torn"...)
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := agent.ForkTranscript(from, to, agent.Meta{}); err != nil {
		t.Fatal(err)
	}
	if _, h := open(t, to); len(h.Messages) != 5 || h.Skipped != 0 || h.Torn != 0 {
		t.Errorf("%d messages, skipped %d, torn %d", len(h.Messages), h.Skipped, h.Torn)
	}
	newer := filepath.Join(dir, "newer")
	if err := os.WriteFile(newer, []byte(`{"entry_type":"head","uuid":"x","format":9}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := agent.ForkTranscript(newer, filepath.Join(dir, "x"), agent.Meta{}); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("a later form: %v", err)
	}
}

// S17: what a later version wrote is read as far as it goes, and left in the
// file; a file of a later form is not written to.
func TestS17LaterVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	long(t, path, 2, 0)
	more := `{"entry_type":"user","uuid":"x","mood":{"a":[1]},"message":{"role":"user","content":[{"type":"text","text":"hi","tone":"warm"}],"extra":1}}` + "\n"
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	_, _ = f.WriteString(more)
	_ = f.Close()
	tr, h := open(t, path)
	if len(h.Messages) != 3 || !bytes.Contains(h.Messages[2].Encoded(), []byte(`"tone":"warm"`)) {
		t.Errorf("%d messages, the last %s", len(h.Messages), h.Messages[len(h.Messages)-1].Encoded())
	}
	add(t, tr, say(agent.Assistant, "on"))
	if data, _ := os.ReadFile(path); !bytes.Contains(data, []byte(more)) {
		t.Error("the line was changed")
	}
	for name, head := range map[string]string{"head": `{"entry_type":"system","uuid":"x","format":2}`, "unknown-head": `{"kind":"head","format":2}`} {
		path := filepath.Join(t.TempDir(), "t.jsonl")
		if err := os.WriteFile(path, []byte(head+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := agent.OpenTranscript(path, agent.Meta{}); err == nil || !strings.Contains(err.Error(), "newer program") {
			t.Errorf("%s: %v", name, err)
		}
		if data, _ := os.ReadFile(path); string(data) != head+"\n" {
			t.Errorf("%s: written to", name)
		}
	}
}

func TestMarkdown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	add(t, tr,
		say(agent.User, "please \x1b[2J look\u202e"),
		agent.Record{Message: agent.NewMessage(agent.Assistant, agent.Block{Type: "thinking", Thinking: "secret"}, agent.TextBlock("I look."),
			agenttest.ToolUse("a", "Bash", `{"command":"`+strings.Repeat("x", 5000)+`"}`))},
		agent.Record{Message: agent.NewMessage(agent.User, agent.ToolResultBlock("a", "```\nout\x07\n````\n"+strings.Repeat("y", 9000), true))},
		agent.Record{Usage: &agent.Usage{}, Aside: true},
		agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock("the sum")), Usage: &agent.Usage{}, Boundary: &agent.Boundary{Trigger: "manual", Before: 12}},
		say(agent.Assistant, "done"))
	_ = tr.Close()
	var out bytes.Buffer
	if err := agent.WriteMarkdown(&out, path); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{"# Conversation of scout\n", "please <U+001B>[2J look<U+202E>\n", "I look.\n", "**Call of Bash**\n\n```\n{\"command\"", "bytes left out",
		"**Error**\n\n`````\n```\nout<U+0007>\n````\n", "## Summed up", "(manual, 12 tokens before)\n\nthe sum\n", "## scout", "done\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got[:min(len(got), 3000)])
		}
	}
	if strings.ContainsAny(got, "\x1b\x07\u202e") || strings.Contains(got, "secret") || len(got) > 7000 {
		t.Errorf("%d bytes of\n%.3000s", len(got), got)
	}
	if err := agent.WriteMarkdown(full{}, path); !errors.Is(err, errFull) {
		t.Errorf("to a full disk: %v", err)
	}
	if err := agent.WriteMarkdown(&out, path+"x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// BenchmarkTail is a first screen from the end of a long file.
func BenchmarkTail(b *testing.B) {
	path := filepath.Join(b.TempDir(), "t.jsonl")
	long(b, path, 20_000, 0)
	for b.Loop() {
		if r, err := agent.Tail(path, 50); err != nil || len(r) != 50 {
			b.Fatal(len(r), err)
		}
	}
}
