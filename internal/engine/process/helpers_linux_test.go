package process_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/test/waittest"
)

// leave runs a line to its end and then ends what it has left, as a driver does.
func leave(t *testing.T, line string, stdin *os.File) (output string, r process.Report) {
	t.Helper()
	out, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	g := start(t, process.Command{Args: sh(line), Dir: t.TempDir(), Stdin: stdin, Stdout: out, Stderr: out})
	if _, err := g.Wait(waittest.Context(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if g.Reap() {
		r = g.End(context.Background(), process.Ending{Grace: time.Second, ByItself: true})
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), r
}

// What helpers of a command still write is there when it has ended, and what lives on is ended and
// named.
func TestHelpers(t *testing.T) {
	for name, c := range map[string]struct {
		line, output string
		ended        string // a pattern for the note; empty: nothing is ended
	}{
		"process substitution": {"exec > >(sleep 0.3; cat) 2>&1; echo hi", "hi\n", ""},
		"filter of stderr":     {"exec 2> >(sleep 0.3; grep -v warning >&2); echo warning >&2; echo error >&2", "error\n", ""},
		"one after the other":  {"exec > >(sleep 0.1; sed s/a/b/ > >(sleep 0.3; cat)); echo a", "b\n", ""},
		"slow reader of a pipe": {"(echo one; echo two) | (sleep 0.3; cat) &",
			"one\ntwo\n", ""},
		"child of a helper": {"exec > >(sleep 0.3 </dev/null; xargs -n1 echo); echo a b", "a\nb\n", ""},
		"named pipe":        {"mkfifo p; (sleep 0.3; cat) <p & exec >p; echo hi", "hi\n", ""},
		"server": {"sleep 100 & echo started", "started\n",
			`^ended with the command: 1 process \(sleep 100, pid \d+\)$`},
		"server that writes to a helper": {"exec > >(cat); sleep 100 & echo started", "started\n",
			`^ended with the command: 1 process \(sleep 100, pid \d+\)$`},
		"writer to a pipe": {"(echo first; exec sleep 100) | cat & while ! [ -s /proc/$$/fd/1 ]; do sleep 0.01; done", "first\n",
			`^ended with the command: \d process`},
		"several": {"for i in 1 2 3 4 5 6 7; do sleep 100 & done", "",
			`^ended with the command: 7 processes \((sleep 100, pid \d+; ){5}and 2 more\)$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, r := leave(t, c.line, nil)
			if output != c.output {
				t.Errorf("output %q, want %q", output, c.output)
			}
			note := r.Note()
			if c.ended == "" && note != "" || !regexp.MustCompile(c.ended).MatchString(note) {
				t.Errorf("note %q, want %q", note, c.ended)
			}
			for _, s := range r.Sent {
				if s.Signal == syscall.SIGTERM && s.After >= 2*time.Second {
					t.Errorf("what does not end by itself was waited for: %v", s.After)
				}
			}
		})
	}
}

// A helper that does not end is ended after a while.
func TestEndlessHelper(t *testing.T) {
	t.Parallel()
	_, r := leave(t, "exec > >(sleep 100); exit", nil)
	if len(r.Ended) != 1 || !strings.HasPrefix(r.Ended[0].Command, "sleep") || r.Sent[0].After < 2*time.Second {
		t.Errorf("%+v", r)
	}
}

// The stdin of a command makes no helper of what has inherited it.
func TestInheritedStdin(t *testing.T) {
	t.Parallel()
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_ = w.Close()
	_, r := leave(t, "sleep 100 <&0 & exit", in)
	if len(r.Ended) != 1 || r.Sent[0].After >= 2*time.Second {
		t.Errorf("%+v", r)
	}
}

// A shell may end before what it forked has become a helper.
func TestYoungHelper(t *testing.T) {
	for range 50 {
		output, r := leave(t, "exec 2> >(grep -v warning >&2); echo error >&2; exit 3", nil)
		if output != "error\n" || len(r.Ended) > 0 {
			t.Fatalf("%q, %+v", output, r)
		}
	}
}
