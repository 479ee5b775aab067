package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// gate makes a pipe in the folder of the stage. Opening its other end waits for
// the one who opens this.
func (s *stage) gate(t *testing.T, name string) string {
	t.Helper()
	if err := syscall.Mkfifo(s.file(name), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.file(name)
}

func open(t *testing.T, path string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func marked(s *stage) int {
	return len(new(process.Table).Marked(process.MarkSession, s.base.SessionID))
}

// TestExit runs real commands for the table of exit codes.
func TestExit(t *testing.T) {
	for _, c := range []struct {
		line             string
		claude, copiloth bool // blocks
	}{
		{"exit 0", false, false},
		{"echo no >&2; exit 1", false, true},
		{"echo no >&2; exit 2", true, true},
		{`echo '{"decision":"approve"}'; echo no >&2; exit 2`, true, true},
		{`echo '{"decision"'; exit 2`, true, true},
		{"echo no >&2; exit 126", false, true},
		{"no-such-program-here", false, true},
		{"kill -9 $$", false, true},
		{"exit 255", false, true},
		{`echo '{"decision":"block","reason":"no"}'`, true, true},
		{`exec > >(sleep 0.3; cat); echo '{"decision":"block","reason":"no"}'`, true, true}, // printed by a helper
	} {
		for form, want := range map[string]bool{claude("PreToolUse", c.line): c.claude, copilot("preToolUse", c.line): c.copiloth} {
			out := play(t, form).Run(t.Context(), PreToolUse, nil)
			if out.Block != want {
				t.Errorf("%s: %+v", form, out)
			}
		}
	}
}

func TestH1Hang(t *testing.T) {
	for event, blocked := range map[Event]bool{PreToolUse: true, UserPromptSubmit: true, Notification: false} {
		s := play(t, timed(string(event), 0.1, "trap '' TERM; (trap '' TERM; sleep 1000) & sleep 1000"))
		out := s.Run(t.Context(), event, nil)
		if out.Block != blocked || !strings.Contains(s.told(), "did not answer within 100ms") {
			t.Errorf("%s: %+v", event, out)
		}
		if n := marked(s); n > 0 {
			t.Errorf("%d processes are left", n)
		}
	}
}

// The daemon is in a session of its own, ignores what is asked of it, and holds
// both streams.
func TestH2Daemon(t *testing.T) {
	s := play(t, claude("SessionStart", `mkfifo up; setsid bash -c 'trap "" TERM; echo > up; sleep 1000' & cat up; echo hello`))
	out := s.Run(t.Context(), SessionStart, nil)
	if lines(out.Context) != "hello" {
		t.Errorf("%+v", out)
	}
	if n := marked(s); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// One that has thrown its marks away cannot be found, and is not waited for.
func TestEscaped(t *testing.T) {
	s := play(t, claude("UserPromptSubmit", "mkfifo up; env -i setsid -f bash -c 'echo > up; read x < go' <&0; cat up > /dev/null; echo heard"))
	gate := s.gate(t, "go")
	out := s.Run(t.Context(), UserPromptSubmit, map[string]any{"prompt": strings.Repeat("x", 1<<20)})
	if out.Block || lines(out.Context) != "heard" {
		t.Errorf("%+v", out)
	}
	_ = open(t, gate, os.O_WRONLY) // lets it go
}

func TestH5Flood(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := play(t, claude("PreToolUse", "yes"))
	out := s.Run(t.Context(), PreToolUse, nil)
	runtime.ReadMemStats(&after)
	if !out.Block || !strings.Contains(out.Reason, "more than 64 MiB") {
		t.Errorf("%+v", out)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*maxKept {
		t.Errorf("%d bytes were allocated", grown)
	}
}

// A hook that prints a lot, but not without end, is heard.
func TestLong(t *testing.T) {
	s := play(t, claude("PreToolUse", "head -c 20000000 /dev/zero; head -c 1000000 /dev/zero >&2; exit 2"))
	if out := s.Run(t.Context(), PreToolUse, nil); !out.Block || len(out.Reason) == 0 || len(out.Reason) > 10*maxText {
		t.Errorf("%v, %d bytes", out.Block, len(out.Reason))
	}
	s = play(t, claude("SessionStart", "head -c 20000000 /dev/zero | tr '\\0' x"))
	out := s.Run(t.Context(), SessionStart, nil)
	if text := lines(out.Context); len(text) > maxText+100 || !strings.Contains(text, "more bytes were dropped") {
		t.Errorf("%d bytes", len(text))
	}
}

func TestH6Deaf(t *testing.T) {
	huge := map[string]any{"prompt": strings.Repeat("x", 50<<20)}
	for _, line := range []string{"exec 0<&-; echo heard", "echo heard", "exec 0<&-; sleep 0 & wait; echo heard"} {
		out := play(t, claude("UserPromptSubmit", line)).Run(t.Context(), UserPromptSubmit, huge)
		if out.Block || lines(out.Context) != "heard" || len(out.UserNotes) > 0 {
			t.Errorf("%s: %+v", line, out)
		}
	}
	out := play(t, claude("UserPromptSubmit", "wc -c")).Run(t.Context(), UserPromptSubmit, huge)
	if n := strings.TrimSpace(lines(out.Context)); len(n) != 8 || n < "52428800" {
		t.Errorf("it read %s bytes", n)
	}
}

func TestH9Untrusted(t *testing.T) {
	text := []byte(claude("PreToolUse", "echo ran > ran"))
	for _, c := range []struct{ trusted, user, runs bool }{{false, false, false}, {true, false, true}, {false, true, true}} {
		set, _ := Load([]Source{{Path: ".drover/hooks.json", Data: text, Trusted: c.trusted, User: c.user}})
		s := playSet(t, set)
		s.Run(t.Context(), PreToolUse, nil)
		if _, err := os.Stat(s.file("ran")); (err == nil) != c.runs {
			t.Errorf("%+v: %v", c, err)
		}
		if inert := set.Inert(); (len(inert) == 0) != c.runs || !c.runs && inert[0].Command != "echo ran > ran" || set.Has(PreToolUse) != c.runs {
			t.Errorf("%+v: %+v", c, inert)
		}
	}
}

func TestH10Terminal(t *testing.T) {
	s := play(t, claude("SessionStart", "{ echo > /dev/tty; } 2>/dev/null && echo terminal || echo none; ps -o sid= -p $$ | tr -d ' '; echo $$"))
	got := strings.Fields(lines(s.Run(t.Context(), SessionStart, nil).Context))
	if len(got) != 3 || got[0] != "none" || got[1] != got[2] {
		t.Errorf("%q: it should have no terminal and lead its own session", got)
	}
}

func TestH11Depth(t *testing.T) {
	for value, c := range map[string]struct {
		next string
		runs bool
	}{"": {"1", true}, "1": {"2", true}, "2": {"3", true}, "3": {"", false}, "9": {"", false}, "-1": {"", false}, "x": {"", false}} {
		s := play(t, claude("PreToolUse", "cat > payload; echo -n $DROVER_HOOK_DEPTH > depth"), func(b *Base) {
			if value != "" {
				b.Env = append(b.Env, Depth+"="+value)
			}
		})
		out := s.Run(t.Context(), PreToolUse, nil)
		if out.Block == c.runs {
			t.Errorf("depth %q: %+v", value, out)
		}
		if !c.runs {
			if !strings.Contains(out.Reason, "hooks deep") {
				t.Errorf("depth %q: %q", value, out.Reason)
			}
			continue
		}
		if got := s.read(t, "depth"); got != c.next || !strings.Contains(s.read(t, "payload"), `"hook_depth":`+string(c.next[0]-1)) {
			t.Errorf("depth %q gives %q", value, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("OF_THE_HOST", "1")
	form := `{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"env > ../env; pwd > ../pwd","cwd":"sub","env":{"MINE":"1","PLAIN":"changed"}}]}}`
	s := play(t, form, func(b *Base) {
		b.Env = append(b.Env, "ANTHROPIC_API_KEY=secret", "DROVER_TASK_ID=other", "PLAIN=1")
		b.Project = "/project"
	})
	if err := os.Mkdir(s.file("sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out := s.Run(t.Context(), PreToolUse, nil); out.Block {
		t.Fatalf("%+v", out)
	}
	env := "\n" + s.read(t, "env")
	for _, kv := range []string{"PLAIN=changed", "MINE=1", "CLAUDE_PROJECT_DIR=/project", "DROVER_PROJECT_DIR=/project", "DROVER_HOOK_DEPTH=1", "DROVER_SESSION=" + s.base.SessionID} {
		if !strings.Contains(env, "\n"+kv+"\n") {
			t.Errorf("%s is missing", kv)
		}
	}
	for _, kv := range []string{"secret", "OF_THE_HOST", "DROVER_TASK_ID=other", "PLAIN=1"} {
		if strings.Contains(env, kv) {
			t.Errorf("%s is there", kv)
		}
	}
	if got := strings.TrimSpace(s.read(t, "pwd")); !strings.HasSuffix(got, "/sub") {
		t.Errorf("it ran in %s", got)
	}
}

// The hooks of one event wait for each other here, so that they end only if all
// run at the same time; and the same command runs once.
func TestSideBySide(t *testing.T) {
	s := play(t, claude("SessionStart", "echo 1 > a; cat b; echo first", "cat a; echo 2 > b; echo second", "echo 1 > a; cat b; echo first"))
	s.gate(t, "a")
	s.gate(t, "b")
	if out := s.Run(t.Context(), SessionStart, nil); strings.Join(out.Context, "|") != "2\nfirst|1\nsecond" {
		t.Errorf("%+v", out)
	}
	// More than may run at the same time, and heard in their order.
	var lines, want []string
	for i := range 2*sideBySide + 1 {
		lines, want = append(lines, fmt.Sprintf("echo %d", i)), append(want, strconv.Itoa(i))
	}
	if out := play(t, claude("SessionStart", lines...)).Run(t.Context(), SessionStart, nil); !slices.Equal(out.Context, want) {
		t.Errorf("%q", out.Context)
	}
}

func TestInterrupted(t *testing.T) {
	for _, event := range []Event{PreToolUse, Notification} {
		s := play(t, claude(string(event), "echo > up; sleep 1000"))
		up := s.gate(t, "up")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _ = os.ReadFile(up) // until the hook is there
			cancel()
		}()
		if out := s.Run(ctx, event, nil); out.Block != (event == PreToolUse) || s.told() != "" {
			t.Errorf("%s: %+v", event, out)
		}
		if n := marked(s); n > 0 {
			t.Errorf("%d processes are left", n)
		}
		if out := s.Run(ctx, event, nil); out.Block != (event == PreToolUse) {
			t.Errorf("%s, later: %+v", event, out)
		}
	}
}

func TestAsync(t *testing.T) {
	s := play(t, claude("PostToolUse", `echo '{"async":true}'; read x < go; echo > did; echo '{"decision":"block"}'; sleep 1000`))
	s.gate(t, "go")
	s.gate(t, "did")
	ctx, cancel := context.WithCancel(t.Context())
	if out := s.Run(ctx, PostToolUse, nil); encode(out) != encode(Outcome{}) {
		t.Errorf("%+v", out)
	}
	cancel() // the end of the turn is not its end
	if _, err := open(t, s.file("go"), os.O_WRONLY).WriteString("x\n"); err != nil {
		t.Fatal(err)
	}
	open(t, s.file("did"), os.O_RDONLY) // waits for the hook
	s.Close()
	if n := marked(s); n > 0 {
		t.Errorf("%d processes are left after closing", n)
	}
	if out := s.Run(t.Context(), PostToolUse, nil); out.Block || !strings.Contains(s.told(), "session closes") {
		t.Errorf("after closing: %+v, %s", out, s.told())
	}
}

// Its time ends a hook in the background too.
func TestAsyncTimeout(t *testing.T) {
	for name, form := range map[string]string{
		"said":    claude("PostToolUse", `echo '{"async":true,"asyncTimeout":50}'; exec 3<>hold; echo x > hold; sleep 1000`),
		"written": `{"hooks":{"PostToolUse":[{"hooks":[{"type":"command","command":"exec 3<>hold; echo x > hold; sleep 1000","timeout":0.3,"async":true}]}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, form)
			s.gate(t, "hold")
			s.Run(t.Context(), PostToolUse, nil)
			s.jobs.Wait() // long before the 1000 s, and without Close
		})
	}
}

func TestCannotStart(t *testing.T) {
	no := errors.New("nobody would end it")
	for name, change := range map[string]func(*Base){
		"bash":   func(b *Base) { b.Env = []string{"PATH=/nowhere"} },
		"folder": func(b *Base) { b.Cwd = "/no/such/folder" },
		"keeper": func(b *Base) { b.Ready = func() error { return no } },
	} {
		s := play(t, claude("PreToolUse", "true"), change)
		if out := s.Run(t.Context(), PreToolUse, nil); !out.Block || !strings.Contains(out.Reason, "could not be started") {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestCallback(t *testing.T) {
	late := make(chan struct{})
	set, _ := new(Set).With(
		Callback{Event: "PreToolUse", Matcher: "Bash", Call: new(ears).on("", `{"decision":"block","reason":"no"}`).Call},
		Callback{Event: "PreToolUse", Matcher: "Read", Timeout: time.Millisecond, Call: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			<-ctx.Done()
			close(late)
			return nil, nil
		}},
		Callback{Event: "PreToolUse", Matcher: "Write", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("gone") }},
	)
	s := playSet(t, set)
	for tool, reason := range map[string]string{"Bash": "no", "Read": "did not answer", "Write": "failed: gone"} {
		if out := s.Run(t.Context(), PreToolUse, map[string]any{"tool_name": tool}); !out.Block || !strings.Contains(out.Reason, reason) {
			t.Errorf("%s: %+v", tool, out)
		}
	}
	<-late
}

// The example of the manual: a plain line with a redirect.
func TestPlainLine(t *testing.T) {
	s := play(t, claude("SubagentStart", "echo started >> $HOME/agents.log"))
	s.Run(t.Context(), SubagentStart, nil)
	s.Run(t.Context(), SubagentStart, nil)
	if got := s.read(t, "agents.log"); got != "started\nstarted\n" {
		t.Errorf("%q", got)
	}
}
