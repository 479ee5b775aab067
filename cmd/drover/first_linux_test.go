package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFirst runs the program as the first process of a container: it reaps what others leave there,
// and its commands keep their exit codes and signals.
func TestFirst(t *testing.T) {
	inside := []string{"unshare", "-r", "--pid", "--fork", "--mount-proc"}
	if out, err := exec.Command(inside[0], append(inside[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("NOT TRIED: %s: %v %s", strings.Join(inside, " "), err, out)
	}
	p := newPlace(t, build(t))
	const zombies = `for i in 1 2 3; do (sh -c 'sleep 0.1 & exit' &); done; sleep 0.5; grep -h State /proc/[0-9]*/status`
	run := func(words ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(inside[0], append(append(inside[1:], filepath.Join(build(t), "drover")), words...)...)
		cmd.Env, cmd.Dir = p.env, p.work
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run("run", "--", "bash", "-c", zombies); code != 0 || strings.Contains(out, "zombie") || !strings.Contains(out, "State:") {
		t.Errorf("exit code %d, processes\n%s", code, out)
	}
	if out, code := run("run", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("exit code %d, not 7: %s", code, out)
	}
	if out, code := run("run", "--", "sh", "-c", "kill -9 $$"); code != 128+int(syscall.SIGKILL) {
		t.Errorf("exit code %d of a killed command: %s", code, out)
	}
	if out, code := run("run", "--timeout", "200ms", "--", "sleep", "100"); code != 124 {
		t.Errorf("exit code %d, not 124: %s", code, out)
	}
}
