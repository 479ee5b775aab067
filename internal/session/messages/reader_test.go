package messages

import (
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// An agent reacts to a message when its conversation holds it: what was only looked at may be left for a later turn.
func TestHeard(t *testing.T) {
	j, err := journal.Open(filepath.Join(t.TempDir(), "log.db"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	m := New(&tree.Tree{Log: j})
	for _, k := range []task.MessageKind{task.PlainMessage, task.ShutdownRequest} {
		if _, err := j.Post(t.Context(), task.Message{To: "a1", From: "main", Kind: k, Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	box, err := m.Open(t.Context(), "a1")
	if err != nil {
		t.Fatal(err)
	}
	var heard []task.MessageKind
	r := m.Reader(box, nil, func(k task.MessageKind) { heard = append(heard, k) })
	letters, err := r.Take(t.Context())
	if err != nil || len(letters) != 2 || len(heard) != 0 {
		t.Fatalf("%d messages are there, heard %v, %v", len(letters), heard, err)
	}
	for i, want := range []task.MessageKind{task.PlainMessage, task.ShutdownRequest} {
		if err := r.Ack(t.Context(), letters[i:i+1]); err != nil || len(heard) != i+1 || heard[i] != want {
			t.Errorf("heard %v, %v", heard, err)
		}
	}
}
