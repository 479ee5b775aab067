package project

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/trust"
)

// typing is a command line at whose terminal somebody types.
func typing(t *testing.T, stdin io.Reader) *app {
	t.Helper()
	terminal := struct {
		io.Reader
		io.Writer
	}{stdin, io.Discard}
	return &app{Console: console.Console{Stdin: terminal, Root: home.At(filepath.Join(t.TempDir(), "state")), IsTerminal: func(io.Writer) bool { return true }}}
}

// On a terminal the user is asked, and only a yes is one.
func TestTrustQuestion(t *testing.T) {
	for answer, trusted := range map[string]bool{"\n": false, "n\n": false, "yeah\n": false, "y\n": true, "YES\n": true} {
		a := typing(t, strings.NewReader(answer))
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, ".mcp.json"), []byte(`{"mcpServers":{"x":{"command":"evil\r\n\u001b[2Jgood"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := a.trust(t.Context(), trustRequest{folder: folder}, &out)
		if (err == nil) != trusted || !strings.Contains(out.String(), "starts the MCP server x: evil<U+000D><U+000A><U+001B>[2Jgood\n") || !strings.Contains(out.String(), "Trust this folder? [y/N] ") {
			t.Errorf("%q: %v\n%s", answer, err, out.String())
		}
		if st, err := trust.At(a.Root.TrustFile()).Check(folder); err != nil || st.Trusted != trusted {
			t.Errorf("%q: trusted %v, %v", answer, st.Trusted, err)
		}
	}
}

// Who is interrupted while being asked has trusted nothing.
func TestTrustInterrupted(t *testing.T) {
	stdin, typed := io.Pipe()
	t.Cleanup(func() { _ = typed.Close() }) // the reader of stdin ends with it
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("interrupted")
	cancel(gone)
	if err := typing(t, stdin).Confirm(ctx, &bytes.Buffer{}, "Trust this folder?", ""); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}
