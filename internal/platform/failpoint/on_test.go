//go:build failpoint

package failpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// A place that is asked for is reported, and the answer is obeyed; every other
// passes without a word.
func TestHit(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	heard := make(chan Reached, 8)
	go func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var r Reached
			_ = json.NewDecoder(bufio.NewReader(c)).Decode(&r)
			heard <- r
			answer := "go\n"
			if r.Name == "b/two" {
				answer = "err ENOSPC\n"
			}
			_, _ = c.Write([]byte(answer))
			c.Close()
		}
	}()
	t.Setenv("DROVER_FAULT_SOCKET", socket)
	t.Setenv("DROVER_FAULT", "a/one,b/two")
	for name, want := range map[string]error{"a/one": nil, "b/two": syscall.ENOSPC, "c/three": nil, "": nil} {
		if err := Hit(name); !errors.Is(err, want) {
			t.Errorf("Hit(%q) = %v, want %v", name, err, want)
		}
	}
	if n := len(heard); n != 2 {
		t.Errorf("%d places were reported, want 2", n)
	}
	if r := <-heard; r.Role != "face" || r.PID != syscall.Getpid() {
		t.Errorf("reported %+v", r)
	}
	t.Setenv("DROVER_FAULT_SOCKET", socket+"-gone")
	if err := Hit("b/two"); err != nil {
		t.Errorf("without a harness: %v", err)
	}
}

func TestRole(t *testing.T) {
	for want, args := range map[string][]string{"host": {"drover", "host"}, "keeper": {"drover", "keeper", "--helper"}, "face": {"drover", "run", "host"}} {
		if got := role(args); got != want {
			t.Errorf("role(%q) = %s, want %s", args, got, want)
		}
	}
	if got := role([]string{"drover"}); got != "face" {
		t.Errorf("role of a bare word: %s", got)
	}
}
