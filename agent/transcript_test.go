package agent_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

func open(t testing.TB, path string) (*agent.Transcript, *agent.History) {
	t.Helper()
	tr, h, err := agent.OpenTranscript(path, agent.Meta{ParentTask: "a12345678", Version: "1.0", Cwd: "/w", IsSidechain: true, AgentName: "scout", AgentID: "a1", SessionID: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr, h
}

func say(role agent.Role, text string) agent.Record {
	return agent.Record{Message: agent.NewMessage(role, agent.TextBlock(text))}
}

func add(t testing.TB, tr *agent.Transcript, records ...agent.Record) {
	t.Helper()
	if err := tr.Append(records...); err != nil {
		t.Fatal(err)
	}
}

func TestTranscriptGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	mail := &agenttest.Mail{}
	mail.Send(agent.MailMessage{Seq: 4, Text: "a letter"})
	l := newLoop(t, agent.Config{
		Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "T", `{"q":"<&>"}`)), agenttest.Say("done")),
		Tools: []agent.Tool{tool{name: "T"}}, Mail: mail, Transcript: tr,
	})
	if _, err := ask(l, "go"); err != nil {
		t.Fatal(err)
	}
	agenttest.Golden(t, "turn", path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestTranscriptGoesOnAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	add(t, tr, agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock("one")), Mail: []int64{3, 9}})
	add(t, tr, agent.Record{Message: agent.NewMessage(agent.Assistant, agent.TextBlock("two")), Usage: &agent.Usage{InputTokens: 4, CacheReadTokens: 2, OutputTokens: 3}, ToolUses: 2})
	_ = tr.Close()
	tr, h := open(t, path)
	if len(h.Messages) != 2 || !slices.Equal(h.Mail, []int64{3, 9}) || h.Skipped != 0 || h.Meta.ParentTask != "a12345678" || h.Meta.AgentName != "scout" {
		t.Errorf("history %+v", h)
	}
	if got := tr.Totals(); got != h.Totals || got.Tokens() != 9 || got.ToolUses != 2 || got.Turns != 1 {
		t.Errorf("totals %+v", got)
	}
	if !tr.Holds(9) || tr.Holds(4) {
		t.Error("letters are forgotten or made up")
	}
	add(t, tr, say(agent.User, "three"))
	data, _ := os.ReadFile(path)
	last := ""
	for i, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var e struct {
			UUID   string `json:"uuid"`
			Parent string `json:"parent_uuid"`
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if e.Parent != last || len(e.UUID) != 36 {
			t.Errorf("line %d: parent %q, want %q", i, e.Parent, last)
		}
		last = e.UUID
	}
}

func TestTornLastLine(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.jsonl")
	tr, _ := open(t, whole)
	add(t, tr, say(agent.User, "kept"))
	before, _ := os.ReadFile(whole)
	add(t, tr, say(agent.Assistant, "torn ü"))
	data, _ := os.ReadFile(whole)
	for cut := len(before); cut < len(data); cut++ {
		path := filepath.Join(dir, fmt.Sprintf("%d.jsonl", cut))
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		tr, h := open(t, path)
		if len(h.Messages) != 1 || h.Torn != int64(cut-len(before)) || h.Skipped != 0 {
			t.Fatalf("cut at %d: %d messages, torn %d, skipped %d", cut, len(h.Messages), h.Torn, h.Skipped)
		}
		add(t, tr, say(agent.User, "after"))
		_ = tr.Close()
		if aside, err := os.ReadFile(path + ".torn"); cut > len(before) && !bytes.Equal(bytes.TrimSuffix(aside, []byte("\n")), data[len(before):cut]) {
			t.Fatalf("cut at %d: kept aside %q, %v", cut, aside, err)
		}
		if _, h := open(t, path); len(h.Messages) != 2 || h.Torn != 0 || h.Skipped != 0 {
			t.Fatalf("cut at %d: after the repair %+v", cut, h)
		}
	}
}

func TestDamageInTheMiddleStaysLocal(t *testing.T) {
	for name, bad := range map[string]string{
		"garbage": "not json",
		"nul":     strings.Repeat("\x00", 4096),
		"empty":   "",
		"glued":   `{"entry_type":"user","uuid":"x","message":{"role":"user","content":[]}}{"entry_type":"user","uuid":"y","message":{"role":"user","content":[]}}`,
		"role":    `{"entry_type":"user","uuid":"x","message":{"role":"assistant","content":[]}}`,
		"deep":    `{"entry_type":"user","uuid":"x","message":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`,
		"long":    `{"entry_type":"user","uuid":"x","message":{"role":"user","content":"` + strings.Repeat("x", 100<<20) + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.jsonl")
			tr, _ := open(t, path)
			add(t, tr, say(agent.User, "one"))
			_ = tr.Close()
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(bad + "\n"); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			tr, _ = open(t, path)
			add(t, tr, say(agent.Assistant, "two"))
			_ = tr.Close()
			_, h := open(t, path)
			if len(h.Messages) != 2 || h.Skipped != 1 || h.Torn != 0 {
				t.Errorf("%d messages, %d skipped, torn %d", len(h.Messages), h.Skipped, h.Torn)
			}
		})
	}
}

func TestLoneSurrogateIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	line := `{"entry_type":"user","uuid":"x","timestamp":1,"message":{"role":"user","content":[{"type":"text","text":"a\ud800b"}]}}` + "\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	_, h := open(t, path)
	if len(h.Messages) != 1 || bytes.Contains(h.Messages[0].Encoded(), []byte(`\ud800`)) {
		t.Errorf("%d messages, %v", len(h.Messages), h.Messages)
	}
}

func TestTranscriptRefusals(t *testing.T) {
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy.jsonl")
	open(t, busy)
	if _, _, err := agent.OpenTranscript(busy, agent.Meta{}); !errors.Is(err, agent.ErrTranscriptBusy) {
		t.Errorf("second opening: %v", err)
	}
	link := filepath.Join(dir, "link.jsonl")
	if err := os.Symlink(filepath.Join(dir, "target"), link); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.jsonl")
	if err := os.WriteFile(newer, []byte(`{"entry_type":"system","uuid":"x","format":2}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v: %s", err, out)
	}
	for name, path := range map[string]string{"link": link, "newer": newer, "folder": dir, "fifo": fifo} {
		t.Run(name, func(t *testing.T) {
			tr, _, err := agent.OpenTranscript(path, agent.Meta{})
			if err == nil {
				_ = tr.Close()
				t.Fatal("opened")
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "target")); !errors.Is(err, os.ErrNotExist) {
		t.Error("wrote through the link")
	}
}

func TestAppendsFromManyGoroutines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for j := range 5 {
				if err := tr.Append(say(agent.User, fmt.Sprint(i, j))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_ = tr.Close()
	if _, h := open(t, path); len(h.Messages) != 100 || h.Skipped != 0 {
		t.Errorf("%d messages, %d skipped", len(h.Messages), h.Skipped)
	}
}

func TestTooLongMessageIsRefusedAndTheNextWorks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	tr, _ := open(t, path)
	if err := tr.Append(say(agent.User, strings.Repeat("x", 65<<20))); err == nil {
		t.Error("accepted")
	}
	add(t, tr, say(agent.User, "short"))
	_ = tr.Close()
	if _, h := open(t, path); len(h.Messages) != 1 || h.Skipped != 0 {
		t.Errorf("%d messages, %d skipped", len(h.Messages), h.Skipped)
	}
}

func FuzzReader(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.jsonl")
	tr, _ := open(f, path)
	add(f, tr, say(agent.User, "one"), agent.Record{Message: agent.NewMessage(agent.Assistant, agenttest.ToolUse("a", "T", `{}`))})
	seed, _ := os.ReadFile(path)
	f.Add(seed)
	f.Add([]byte("\n\x00{}\n[1]\n"))
	f.Add([]byte(`{"entry_type":"user","uuid":"x","message":{"role":"user","content":[{"type":"tool_result"},1]}}` + "\n"))
	dir := f.TempDir()
	n := 0
	f.Fuzz(func(t *testing.T, data []byte) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		defer os.Remove(path + ".torn")
		tr, h, err := agent.OpenTranscript(path, agent.Meta{})
		if err != nil {
			return
		}
		defer tr.Close()
		if _, _, err := agent.Repair(h.Messages); err != nil {
			t.Fatalf("repair what was read: %v", err)
		}
		if err := tr.Append(say(agent.User, "new")); err != nil {
			t.Fatal(err)
		}
		_ = tr.Close()
		tr, again, err := agent.OpenTranscript(path, agent.Meta{})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if len(again.Messages) != len(h.Messages)+1 || again.Torn != 0 {
			t.Fatalf("%d messages after %d and one more, torn %d", len(again.Messages), len(h.Messages), again.Torn)
		}
	})
}

// BenchmarkResume opens a conversation of 100,000 messages, half of them results
// of calls, until it is ready for the next turn, beside reading its lines.
func BenchmarkResume(b *testing.B) {
	const n = 100_000
	path := filepath.Join(b.TempDir(), "t.jsonl")
	tr, _ := open(b, path)
	body := strings.Repeat("some words of a tool's output\n", 130)
	for i := range n / 2 {
		id := fmt.Sprintf("c%d", i)
		add(b, tr,
			agent.Record{Message: agent.NewMessage(agent.Assistant, agent.TextBlock(body), agenttest.ToolUse(id, "T", `{"command":"ls"}`)), Usage: &agent.Usage{}},
			agent.Record{Message: agent.NewMessage(agent.User, agent.ToolResultBlock(id, body, false))})
	}
	_ = tr.Close()
	info, _ := os.Stat(path)
	b.SetBytes(info.Size())
	var ready, floor time.Duration
	for b.Loop() {
		start := time.Now()
		tr, h, err := agent.OpenTranscript(path, agent.Meta{})
		if err != nil || len(h.Messages) != n {
			b.Fatal(err)
		}
		if _, err := agent.NewLoop(agent.Config{Model: agenttest.Steps()}, h.Messages); err != nil {
			b.Fatal(err)
		}
		ready += time.Since(start)
		_ = tr.Close()
		start = time.Now()
		f, _ := os.Open(path)
		lines := bufio.NewScanner(f)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
		}
		_ = f.Close()
		floor += time.Since(start)
	}
	b.ReportMetric(float64(ready.Milliseconds())/float64(b.N), "ms-ready")
	b.ReportMetric(float64(ready)/float64(floor), "x-reading-lines")
}

func BenchmarkAppend(b *testing.B) {
	tr, _ := open(b, filepath.Join(b.TempDir(), "t.jsonl"))
	r := say(agent.User, strings.Repeat("x", 1000))
	b.SetBytes(1000)
	for b.Loop() {
		add(b, tr, r)
	}
}
