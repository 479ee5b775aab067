package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// fullVariable makes this program write a transcript that may not become as large as
// what it writes. It holds the path.
const fullVariable = "AGENT_TEST_FULL"

// filling runs when the variable is set: of the second record a part gets through.
func filling(path string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	said := func(text string) agent.Record {
		return agent.Record{Message: agent.NewMessage(agent.User, agent.TextBlock(text))}
	}
	tr, _, err := agent.OpenTranscript(path, agent.Meta{})
	must(err)
	must(tr.Append(said("first")))
	info, err := os.Stat(path)
	must(err)
	signal.Ignore(syscall.SIGXFSZ) // the write is to fail, as it does on a full disk
	var room syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &room))
	tight := room
	tight.Cur = uint64(info.Size()) + 100
	must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &tight))
	if err := tr.Append(said(strings.Repeat("second ", 1000))); !errors.Is(err, syscall.EFBIG) {
		panic(err)
	}
	if now, err := os.Stat(path); err != nil || now.Size() != info.Size() {
		panic("a part of a line is left")
	}
	must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &room))
	must(tr.Append(said("third")))
	must(tr.Close())
}

// Of a line for which there is no room nothing is left: the next begins where it began.
func TestPartOfALineIsTakenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullVariable+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		if !json.Valid(line) || !bytes.HasSuffix(line, []byte("\n")) {
			t.Errorf("a line that is none: %.80q", line)
		}
	}
	tr, h := open(t, path)
	defer tr.Close()
	var said []string
	for _, m := range h.Messages {
		said = append(said, contents(t, m)...)
	}
	if !slices.Equal(said, []string{"first", "third"}) {
		t.Errorf("the conversation is %q", said)
	}
}
