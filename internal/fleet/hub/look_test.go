package hub

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
)

// A stream whose folder is there before it is known is being made. One that stays so is damaged, and the hub takes
// nothing more.
func TestLook(t *testing.T) {
	var log bytes.Buffer
	root := home.At(t.TempDir())
	h, err := Open(t.Context(), Config{Root: root, Dir: filepath.Join(root.Dir(), "hub"), Listen: "127.0.0.1:0", Name: "test", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.stop()
	h.watcher.Wait() // the test looks in its place
	if err := h.Describe(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	accounts, err := filepath.Glob(filepath.Join(storeDir(h.cfg.Dir), "jetstream", "*", "streams"))
	if err != nil || len(accounts) != 1 {
		t.Fatalf("accounts %q, %v", accounts, err)
	}
	made := filepath.Join(accounts[0], "MADE")
	closed := func() bool { // and opened again, with what can be recovered
		log.Reset()
		h.look(time.Now())
		return strings.Contains(log.String(), "the hub takes no messages")
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(made, 0o700))
	if closed() {
		t.Error("it is closed for a stream that is being made")
	}
	must(os.Remove(made))
	if closed() {
		t.Error("it is closed for a stream that was being made")
	}
	must(os.Mkdir(made, 0o700))
	if closed() || !closed() {
		t.Error("it is not closed for a damaged stream at the second look")
	}
}
