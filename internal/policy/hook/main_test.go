package hook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a runner in a folder of its own, with what it told the user.
type stage struct {
	*Runner
	dir string

	mu    sync.Mutex
	notes []string
}

func (s *stage) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.notes, "\n")
}

// play makes a runner of one trusted source. In the end nothing that it started
// may be there any more.
func play(t *testing.T, source string, change ...func(*Base)) *stage {
	t.Helper()
	set, problems := Load([]Source{{Path: "hooks.json", Data: []byte(source), Trusted: true}})
	for _, p := range problems {
		t.Errorf("%v", p)
	}
	return playSet(t, set, change...)
}

func playSet(t *testing.T, set *Set, change ...func(*Base)) *stage {
	t.Helper()
	s := &stage{dir: t.TempDir()}
	base := Base{SessionID: "session-" + rand.Text(), TranscriptPath: "/t.jsonl", Cwd: s.dir, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir},
		Tell: func(_ Event, text string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.notes = append(s.notes, text)
		}}
	for _, c := range change {
		c(&base)
	}
	s.Runner = NewRunner(set, base)
	t.Cleanup(func() {
		s.Close()
		for _, p := range new(process.Table).Marked(process.MarkSession, base.SessionID) {
			t.Errorf("process %d is left", p.PID)
		}
	})
	return s
}

// file is the path of a file in the folder of the stage, and read what is in it.
func (s *stage) file(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(s.file(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// claude is a file in the form of Claude with commands for one event.
func claude(event string, commands ...string) string { return timed(event, 0, commands...) }

func timed(event string, seconds float64, commands ...string) string {
	var hooks []map[string]any
	for _, c := range commands {
		h := map[string]any{"type": "command", "command": c}
		if seconds > 0 {
			h["timeout"] = seconds
		}
		hooks = append(hooks, h)
	}
	return encode(map[string]any{"hooks": map[string]any{event: []any{map[string]any{"hooks": hooks}}}})
}

func copilot(event, command string) string {
	return encode(map[string]any{"version": 1, "hooks": map[string]any{event: []any{map[string]any{"type": "command", "bash": command}}}})
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// heard collects what callbacks were told.
type ears struct {
	mu  sync.Mutex
	all []map[string]any
}

// on is a callback that answers with a text, and remembers.
func (e *ears) on(event, answer string) Callback {
	return Callback{Event: event, Call: func(_ context.Context, payload json.RawMessage) (json.RawMessage, error) {
		var p map[string]any
		if err := json.Unmarshal(payload, &p); err != nil {
			return nil, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, p)
		return json.RawMessage(answer), nil
	}}
}

func (e *ears) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}

func with(t *testing.T, callbacks ...Callback) *Set {
	t.Helper()
	set, problems := new(Set).With(callbacks...)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

// tool is a tool that is never called.
type tool struct {
	name    string
	aliases []string
}

func (t tool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: t.name} }
func (t tool) Aliases() []string    { return t.aliases }
func (t tool) Call(context.Context, agent.Call) (agent.Output, error) {
	panic("called")
}

func toolbox(b *Base) {
	b.Tools = []agent.Tool{tool{"Bash", []string{"bash", "shell"}}, tool{"Agent", []string{"Task", "task"}}, tool{"Read", []string{"FileRead", "view"}}}
}

func call(name, input string) agent.Call {
	return agent.Call{ID: "toolu_1", Name: name, Input: json.RawMessage(input)}
}
