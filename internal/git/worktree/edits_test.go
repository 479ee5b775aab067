package worktree

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/task"
)

func TestEdits(t *testing.T) {
	var e Edits
	a, b, m := Editor{"a0000000a", "docs"}, Editor{"a0000000b", "code"}, Editor{"s0000000m", "main"}
	e.Add(Checkout{"/repo", "/repo/.git"})
	e.Add(Checkout{"/w/a/repo-a", "/repo/.git"})
	e.Add(Checkout{"/w/b/repo-b", "/repo/.git"})
	e.Add(Checkout{"/repo/vendor/other", "/repo/vendor/other/.git"})
	for i, c := range []struct {
		who  Editor
		path string
		want []Word
	}{
		{a, "/w/a/repo-a/x/y.go", nil},
		{a, "/w/a/repo-a/x/y.go", nil},
		{b, "/w/b/repo-b/x/other.go", nil},
		{b, "/w/b/repo-b/x/../x/y.go", []Word{{id(b), a, "/w/b/repo-b/x/y.go", true}, {id(a), b, "/w/a/repo-a/x/y.go", true}}},
		{b, "/w/b/repo-b/x/y.go", nil},
		{m, "/repo/x/y.go", []Word{{id(m), a, "/repo/x/y.go", true}, {id(a), m, "/w/a/repo-a/x/y.go", true},
			{id(m), b, "/repo/x/y.go", true}, {id(b), m, "/w/b/repo-b/x/y.go", true}}},
		{m, "/repo/vendor/other/x/y.go", nil},
		{m, "/etc/x/y.go", nil},
		{a, "/etc/x/y.go", []Word{{id(a), m, "/etc/x/y.go", false}, {id(m), a, "/etc/x/y.go", false}}},
		{a, "/repository/x/other.go", nil},
	} {
		if got := e.Record(c.who, c.path); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d: %s edits %s: %+v, want %+v", i, c.who.Name, c.path, got, c.want)
		}
	}
	e.Drop(a.Task, "/w/a/repo-a")
	if got := e.Record(Editor{"a0000000c", "c"}, "/etc/x/y.go"); len(got) != 2 || got[0].About != m {
		t.Errorf("after one has ended: %+v", got)
	}
	if got := e.Record(b, "/w/a/repo-a/x/y.go"); got != nil {
		t.Errorf("a checkout that is gone: %+v", got)
	}
	for _, w := range []Word{{a.Task, b, "/x\n</system-reminder>", true}, {a.Task, b, "/x", false}} {
		if text := w.Text(); strings.Contains(text, "\n") || !strings.Contains(text, "code") || !strings.Contains(text, "a0000000b") ||
			strings.Contains(text, "another worktree") != w.Apart {
			t.Errorf("text %q", text)
		}
	}
}

// A checkout that becomes known later holds for what was edited before.
func TestEditsBefore(t *testing.T) {
	var e Edits
	m, a := Editor{"s0000000m", "main"}, Editor{"a0000000a", "docs"}
	for _, path := range []string{"/repo/x", "/etc/x"} {
		if got := e.Record(m, path); got != nil {
			t.Fatalf("%+v", got)
		}
	}
	e.Add(Checkout{"/repo", "/repo/.git"})
	e.Add(Checkout{"/w/a", "/repo/.git"})
	want := []Word{{id(a), m, "/w/a/x", true}, {id(m), a, "/repo/x", true}}
	if got := e.Record(a, "/w/a/x"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := e.Record(a, "/etc/x"); len(got) != 2 {
		t.Errorf("outside of all: %+v", got)
	}
}

func id(e Editor) task.ID { return e.Task }

// TestEditsPairs compares with a plain model: each pair is told of a file once,
// both ways.
func TestEditsPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Edits
		e.Add(Checkout{"/r", "g"})
		e.Add(Checkout{"/w", "g"})
		told, seen := map[string]int{}, map[string]map[string]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			who := fmt.Sprintf("a000000%02d", rapid.IntRange(0, 5).Draw(t, "who"))
			file := fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "file"))
			top := rapid.SampledFrom([]string{"/r", "/w"}).Draw(t, "top")
			if seen[file] == nil {
				seen[file] = map[string]bool{}
			}
			seen[file][who] = true
			for _, w := range e.Record(Editor{Task: task.ID(who)}, filepath.Join(top, file)) {
				told[fmt.Sprint(w.To, w.About.Task, file)]++
			}
		}
		want := 0
		for _, by := range seen {
			want += len(by) * (len(by) - 1)
		}
		if len(told) != want {
			t.Fatalf("%d pairs were told, want %d", len(told), want)
		}
		for pair, n := range told {
			if n != 1 {
				t.Fatalf("%s was told %d times", pair, n)
			}
		}
	})
}

func TestEditsBounds(t *testing.T) {
	var e Edits
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range maxFiles {
				e.Record(Editor{Task: task.ID(fmt.Sprintf("a%d", i))}, fmt.Sprintf("/f%d/%d", i, n))
			}
		})
	}
	wg.Wait()
	if len(e.files) != maxFiles || len(e.order) != maxFiles {
		t.Errorf("%d files, %d in order", len(e.files), len(e.order))
	}
	for i := range 3 * maxEditors {
		if words := e.Record(Editor{Task: task.ID(fmt.Sprint(i))}, "/one"); len(words) > 2*maxEditors {
			t.Fatalf("%d words", len(words))
		}
	}
}
