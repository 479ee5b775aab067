package dreams

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// remembering is a session of a project with a memory.
func remembering(t *testing.T) (home.Session, *memory.Store) {
	t.Helper()
	place := home.At(filepath.Join(t.TempDir(), "state")).Project(t.TempDir()).Session(task.NewSessionID())
	store := memory.At(place.Project().Memory())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	if err := store.Ensure(); err != nil {
		t.Fatal(err)
	}
	return place, store
}

// Of the project's state a dream reads the conversations and nothing else.
func TestDreamMayRead(t *testing.T) {
	place, store := remembering(t)
	d := New(&tree.Tree{Place: place}, agents.Config{Memory: store}, nil, nil, nil, nil)
	rules, bad := policy.New(d.rules(nil))
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	project := place.Project().Dir()
	a := &area{store: store, project: resolved(project), rules: rules}
	for path, want := range map[string]bool{
		filepath.Join(place.Project().Memory(), "a.md"):        true,
		filepath.Join(place.Project().Memory(), "board.jsonl"): false,
		place.Transcript():                                  true,
		place.AgentTranscript("a00000000"):                  true,
		place.OutputLink("a00000000"):                       false,
		place.DB():                                          false,
		filepath.Join(place.Dir(), "usage.jsonl"):           false,
		filepath.Join(project, "other", "transcript.jsonl"): false,
		filepath.Join(project, "transcript.jsonl"):          false,
		filepath.Join(project, "..", "x", string(place.ID()), "transcript.jsonl"): false,
		"/etc/passwd": false,
	} {
		if got := a.mayRead(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// What a call would make of a file is bounded, also where it replaces many things,
// and a file that is nearly full can be put right.
func TestDreamMayWrite(t *testing.T) {
	_, store := remembering(t)
	full := filepath.Join(store.Dir(), "full.md")
	if err := os.WriteFile(full, []byte(strings.Repeat("0123456789abcdef", memory.MaxFile/16)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &area{store: store}
	for name, c := range map[string]struct {
		input map[string]any
		good  bool
	}{
		"write":  {map[string]any{"file_path": "new.md", "content": "x"}, true},
		"same":   {map[string]any{"file_path": "full.md", "old_string": "abcdef", "new_string": "ABCDEF"}, true},
		"less":   {map[string]any{"file_path": full, "old_string": "abcdef", "new_string": "A", "replace_all": true}, true},
		"more":   {map[string]any{"file_path": "full.md", "old_string": "abcdef", "new_string": "1234567"}, false},
		"each":   {map[string]any{"file_path": "full.md", "old_string": "a", "new_string": "bb", "replace_all": true}, false},
		"gone":   {map[string]any{"file_path": "full.md", "old_string": "absent", "new_string": strings.Repeat("x", 100)}, true}, // the tool says so
		"create": {map[string]any{"file_path": "new.md", "old_string": "", "new_string": strings.Repeat("x", memory.MaxFile+1)}, false},
		"broken": {map[string]any{"file_path": 7}, false},
	} {
		input, err := json.Marshal(c.input)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.mayWrite(input); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
