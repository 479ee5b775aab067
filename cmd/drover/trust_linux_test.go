package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/agentenv/trust"
	"github.com/drover-dev/drover/internal/platform/home"
)

// terminal is both ends of a pseudo-terminal.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminal here: ", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// On a terminal the user is asked, and only a yes is one.
func TestTrustQuestion(t *testing.T) {
	for answer, trusted := range map[string]bool{"\n": false, "n\n": false, "yeah\n": false, "y\n": true, "YES\n": true} {
		w := &world{root: home.At(filepath.Join(t.TempDir(), "state"))}
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, ".mcp.json"), []byte(`{"mcpServers":{"x":{"command":"evil\r\n\u001b[2Jgood"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		person, program := terminal(t)
		if _, err := person.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := w.trust(t.Context(), trustRequest{folder: folder}, program, &out)
		if (err == nil) != trusted || !strings.Contains(out.String(), "starts the MCP server x: evil<U+000D><U+000A><U+001B>[2Jgood\n") || !strings.Contains(out.String(), "Trust this folder? [y/N] ") {
			t.Errorf("%q: %v\n%s", answer, err, out.String())
		}
		if st, err := trust.At(w.root.TrustFile()).Check(folder); err != nil || st.Trusted != trusted {
			t.Errorf("%q: trusted %v, %v", answer, st.Trusted, err)
		}
	}
}

// Who is interrupted while being asked has trusted nothing.
func TestTrustInterrupted(t *testing.T) {
	_, program := terminal(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("interrupted")
	cancel(gone)
	if err := confirmTrust(ctx, program, &bytes.Buffer{}); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}
