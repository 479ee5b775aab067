package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/task"
)

// TestForeground: a command in the foreground is bounded, meets a closed pipe and a
// Ctrl-C as it would without Drover in front of it.
func TestForeground(t *testing.T) {
	bin := build(t)
	ways := cases{"limit": foregroundLimit, "reader gone": foregroundReader, "full": foregroundFull, "interrupt": foregroundInterrupt, "hurry": foregroundHurry}
	for name, test := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

func foregroundLimit(t *testing.T, p *place) {
	p.user(`{"tasks": {"outputLimitBytes": 100000}}`)
	p.fails(143, []string{"run", "--name", "loud", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; exec sleep 4711"}, "reached its limit of 100000 bytes")
	if r := p.inspected("loud"); r.Status != task.Failed || r.Cause == nil || r.Cause.Reason != task.ReasonOutputLimit || r.Cause.Actor != task.ByRuntime || r.OutputBytes < 3000000 {
		t.Errorf("%s %+v, %d bytes", r.Status, r.Cause, r.OutputBytes)
	}
}

// foregroundReader: as a shell has it, the command ends by SIGPIPE, and nothing is said.
func foregroundReader(t *testing.T, p *place) {
	cmd := p.command("run", "--name", "loud", "--", "yes")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
		t.Error(err)
	}
	_ = out.Close()
	if code := exitCode(cmd.Wait()); code != 141 || errs.Len() > 0 {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
	if r := p.inspected("loud"); r.Status != task.Failed || r.Cause == nil || r.Cause.Signal != "SIGPIPE" || !strings.Contains(r.Error, "nobody read any more") {
		t.Errorf("%s %+v %q", r.Status, r.Cause, r.Error)
	}
}

// foregroundFull: what could not be shown is no success of Drover's, whatever became
// of the command.
func foregroundFull(t *testing.T, p *place) {
	for name, line := range map[string]string{"short": "echo hello", "endless": "exec yes"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		var errs strings.Builder
		cmd := p.command("run", "--name", name, "--", "sh", "-c", line)
		cmd.Stdout, cmd.Stderr = full, &errs
		if code := exitCode(cmd.Run()); code != 125 || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: exit code %d, %s", name, code, errs.String())
		}
	}
	if r := p.inspected("short"); r.Status != task.Completed {
		t.Errorf("short: %s %+v", r.Status, r.Cause)
	}
	if r := p.inspected("endless"); r.Cause == nil || r.Cause.Signal != "SIGPIPE" || !strings.Contains(r.Error, "no space left") {
		t.Errorf("endless: %s %+v %q", r.Status, r.Cause, r.Error)
	}
}

// interrupted starts a command that prints ready, and interrupts it.
func (p *place) interrupted(name string, args ...string) (*exec.Cmd, io.Reader) {
	p.t.Helper()
	cmd := p.command(append([]string{"run", "--name", name, "--"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, len("ready\n")))
	}
	if err == nil {
		err = cmd.Process.Signal(syscall.SIGINT)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return cmd, out
}

func foregroundInterrupt(t *testing.T, p *place) {
	const traps = "trap 'echo INT; exit 7' INT; trap 'echo TERM; exit 8' TERM; echo ready; while :; do sleep 0.02; done"
	for name, c := range map[string]struct {
		line, rest, signal string
		code               int
	}{
		"trapped": {traps, "INT\n", "", 7},
		"dead":    {"echo ready; exec sleep 4711", "", "SIGINT", 130},
		"deaf":    {"trap '' INT; echo ready; exec sleep 4711", "", "SIGTERM", 143},
	} {
		cmd, out := p.interrupted(name, "bash", "-c", c.line)
		rest, _ := io.ReadAll(out)
		if code := exitCode(cmd.Wait()); code != c.code || string(rest) != c.rest {
			t.Errorf("%s: exit code %d, printed %q", name, code, rest)
		}
		if r := p.inspected(name); r.Status != task.Killed || r.Cause == nil || r.Cause.Actor != task.ByUser || r.Cause.Reason != task.ReasonInterrupt || r.Cause.Signal != c.signal {
			t.Errorf("%s: %s %+v", name, r.Status, r.Cause)
		}
	}
}

// foregroundHurry: a second Ctrl-C ends what takes its time. Without it TERM would have
// ended the command.
func foregroundHurry(t *testing.T, p *place) {
	cmd, out := p.interrupted("slow", "bash", "-c", "trap 'echo wait' INT; echo ready; while :; do sleep 0.02; done")
	if _, err := io.ReadFull(out, make([]byte, len("wait\n"))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(cmd.Wait()); code != 137 {
		t.Errorf("exit code %d", code)
	}
	if r := p.inspected("slow"); r.Cause == nil || r.Cause.Signal != "SIGKILL" || r.Cause.Reason != task.ReasonInterrupt {
		t.Errorf("%s %+v", r.Status, r.Cause)
	}
}
