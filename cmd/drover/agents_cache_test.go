package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// The session of the promise on the cache.
const (
	cacheTurns         = 100 // replies of the main agent
	cacheNotifications = 20
	cacheAgentAt       = 50 // when a file of an agent is added
	minShare           = 0.95
	maxNotification    = 120 // tokens of a notification without a result
	bytesPerToken      = 3   // fewer than any tokenizer needs for such text
)

// sent is a request as a provider's cache sees it: tools, system prompt and
// messages, in this order, without the marks that say how far to keep it.
type sent struct {
	tools, system []byte
	messages      []byte
}

func (s sent) all() []byte { return bytes.Join([][]byte{s.tools, s.system, s.messages}, nil) }

// withoutMarks matches the marks of a request.
var withoutMarks = regexp.MustCompile(`,?"cache_control":\{[^}]*\}`)

func asSent(t *testing.T, r *modeltest.Request) sent {
	t.Helper()
	var body struct {
		Tools    json.RawMessage   `json:"tools"`
		System   json.RawMessage   `json:"system"`
		Messages []json.RawMessage `json:"messages"`
	}
	raw := withoutMarks.ReplaceAll(r.Body, nil)
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatal(err)
	}
	s := sent{tools: body.Tools, system: body.System}
	for _, m := range body.Messages {
		s.messages = append(s.messages, m...)
	}
	return s
}

func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// TestCachePromise: over 100 turns with 20 notifications, and with an agent that is
// added on the way, what a provider has read before is sent again byte for byte.
func TestCachePromise(t *testing.T) {
	p := newPlace(t, build(t))
	var mu sync.Mutex
	turns, notifications := 0, 0
	var child []*modeltest.Request
	m, err := modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		if r.Agent() == "late-comer" {
			if child = append(child, r); len(child) < 10 {
				return modeltest.Call("Read", map[string]any{"file_path": "notes.txt", "offset": len(child)})
			}
			return modeltest.Text("I came late")
		}
		if turns++; turns == cacheAgentAt-8 { // long before the command of which nothing but its end may be reported
			p.file(".claude/agents/late.md", "---\nname: late-comer\ndescription: Comes when the session is half over.\ntools: Read\n---\nYou are late.\n")
		}
		switch {
		case turns == cacheAgentAt:
			return modeltest.Call("Bash", later("cat f"))
		case turns == cacheAgentAt+1:
			return modeltest.Text("half of it is done") // the notification of the command begins a new turn, which looks at files
		case turns == cacheAgentAt+5:
			return modeltest.Call("Agent", asks("late-comer", "say hello"))
		case turns >= cacheTurns:
			return modeltest.Text("done")
		case turns%4 == 0 && notifications < cacheNotifications-1:
			notifications++
			return modeltest.Call("Bash", later(fmt.Sprintf("echo notification %d", turns)))
		}
		return modeltest.Call("Bash", bash(fmt.Sprintf("echo line %d; cat notes.txt", turns)))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	p.env = append(p.env, "ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=sk-test")
	p.file("notes.txt", strings.Repeat("What a command prints is a few lines long.\n", 5))
	p.file("AGENTS.md", "Be exact.\n")
	fifo := p.fifo("f")
	run := p.start("-p", "work through it", anything, "--max-turns", "200", "--output-format=stream-json")
	run.until(`"result"`, "half of it is done")
	p.free(fifo)
	if res := run.wait(); res.code != 0 {
		t.Fatalf("exit code %d: %s", res.code, res.stderr)
	}

	all := of(m, "main")
	last := texts(t, all[len(all)-1])
	if n := count(last, notification); len(all) < cacheTurns || n != cacheNotifications {
		t.Fatalf("%d requests with %d notifications, want %d with %d", len(all), n, cacheTurns, cacheNotifications)
	}
	average, sum := cached(t, all)
	if average < minShare || sum < minShare {
		t.Errorf("%.1f %% on average and %.1f %% in sum are a prefix of the request before, want %.0f %%", 100*average, 100*sum, 100*minShare)
	}
	cached(t, child)
	lateAgent(t, all, last, child[0])
	notificationSize(t, p, last)

	p.good("-p", "and on", anything, "--continue", "--max-turns", "200")
	all = of(m, "main")
	if average, _ = cached(t, all[len(all)-2:]); average < minShare {
		t.Errorf("%.1f %% of the first request of a resumed session are a prefix of the last before", 100*average)
	}
}

// cached checks that each request begins with the whole of the one before, with
// the same tools and system prompt, and returns how much of it that is.
func cached(t *testing.T, all []*modeltest.Request) (average, sum float64) {
	t.Helper()
	first := asSent(t, all[0])
	before, bytesAll, bytesKept, shares := first, 0, 0, 0.0
	for i, r := range all[1:] {
		s := asSent(t, r)
		if !bytes.Equal(s.tools, first.tools) || !bytes.Equal(s.system, first.system) {
			t.Fatalf("tools or system prompt of request %d differ from those of the first", i+2)
		}
		kept := common(before.all(), s.all())
		if kept < len(before.all()) {
			t.Errorf("request %d changes what request %d said, at byte %d of %d: %.200s", i+2, i+1, kept, len(before.all()), s.all()[kept:])
		}
		bytesAll, bytesKept, shares = bytesAll+len(s.all()), bytesKept+kept, shares+float64(kept)/float64(len(s.all()))
		before = s
	}
	average, sum = shares/float64(len(all)-1), float64(bytesKept)/float64(bytesAll)
	t.Logf("%d requests of %d to %d bytes: a prefix of the request before are %.1f %% on average, %.1f %% in sum",
		len(all), len(first.all()), len(before.all()), 100*average, 100*sum)
	return average, sum
}

// lateAgent: the model hears of the new agent once, behind what was said, and
// can start it.
func lateAgent(t *testing.T, all []*modeltest.Request, last []string, child *modeltest.Request) {
	t.Helper()
	if n := count(last, "late-comer: Comes when"); n != 1 {
		t.Errorf("the model was told of the new agent %d times", n)
	}
	for i, r := range all {
		if n := count(texts(t, r), "late-comer: Comes when"); i != cacheAgentAt && (n == 1) != (i > cacheAgentAt) {
			t.Errorf("request %d tells of the new agent %d times", i+1, n)
			break
		}
	}
	if child == nil || !strings.Contains(string(asSent(t, child).system), "You are late.") || count(last, "I came late") != 1 {
		t.Error("the new agent was not started, or not with its prompt")
	}
}

// notificationSize measures notifications by three bytes a token, with the state where it
// usually is: the path of a test is longer.
func notificationSize(t *testing.T, p *place, last []string) {
	t.Helper()
	const usual = "/home/somebody/.local/state/drover"
	largest := 0
	for _, text := range last {
		for _, n := range regexp.MustCompile(`(?s)<task-notification>.*?</task-notification>`).FindAllString(text, -1) {
			n = strings.ReplaceAll(n, filepath.Join(p.work, "state"), usual)
			got := (len(n) + bytesPerToken - 1) / bytesPerToken
			if largest = max(largest, got); got > maxNotification {
				t.Errorf("a notification of %d bytes, about %d tokens, want %d at most:\n%s", len(n), got, maxNotification, n)
				return
			}
		}
	}
	t.Logf("the largest notification has about %d tokens, with %d bytes for each", largest, bytesPerToken)
	if _, err := os.Stat(filepath.Join(p.work, "state")); err != nil {
		t.Error(err) // what was replaced is not where the state is
	}
}
