package todo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/test/racetest"
)

func fresh(t *testing.T) *Store {
	t.Helper()
	return At(filepath.Join(t.TempDir(), "todos", "list"), false)
}

func plant(t *testing.T, s *Store, name, text string) {
	t.Helper()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestEmpty(t *testing.T) {
	s := fresh(t)
	if l := list(t, s); len(l.Items)+len(l.Problems) != 0 {
		t.Errorf("a list that is not there holds %v", l)
	}
	if _, err := os.Lstat(s.dir); err == nil {
		t.Error("reading created the folder")
	}
	if _, err := s.Update(t.Context(), 1, Patch{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Update = %v", err)
	}
	if _, err := s.Delete(t.Context(), 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("Delete = %v", err)
	}
}

// TestLife takes one to-do through all that can happen to it, reading it again
// with another Store each time.
func TestLife(t *testing.T) {
	for _, power := range []bool{false, true} {
		t.Run(fmt.Sprint(power), func(t *testing.T) {
			s := At(filepath.Join(t.TempDir(), "list"), power)
			it, err := s.Create(t.Context(), Draft{Subject: "Write the parser", Description: "with\ttests\nand <docs>", ActiveForm: "Writing the parser",
				Metadata: map[string]json.RawMessage{"big": json.RawMessage("12345678901234567890"), "x": json.RawMessage(`{ "a": [1, null] }`)}})
			if err != nil || it.ID != 1 || it.Status != Pending {
				t.Fatalf("Create = %+v, %v", it, err)
			}
			see := func(want func(Item) bool) {
				t.Helper()
				got, ok := list(t, At(s.dir, false)).Get(1)
				if !ok || !want(got) {
					t.Errorf("it is %+v", got)
				}
			}
			see(func(it Item) bool {
				return it.Description == "with\ttests\nand <docs>" && it.Title() == "Write the parser" && string(it.Metadata["big"]) == "12345678901234567890" &&
					string(it.Metadata["x"]) == `{"a":[1,null]}` && it.Revision == 1 && !it.CreateTime.IsZero()
			})
			for i, c := range []struct {
				patch  Patch
				fields string
				want   func(Item) bool
			}{
				{Patch{Status: ptr(InProgress), By: "main"}, "status owner", func(it Item) bool { return it.Owner == "main" && it.Title() == "Writing the parser" }},
				{Patch{Status: ptr(InProgress), By: "other"}, "", func(it Item) bool { return it.Owner == "main" }},
				{Patch{Status: ptr(Completed), By: "other"}, "status", func(it Item) bool { return it.Status == Completed && it.Owner == "main" }},
				{Patch{Status: ptr(Pending)}, "status", func(it Item) bool { return it.Status == Pending }},
				{Patch{Owner: ptr("")}, "owner", func(it Item) bool { return it.Owner == "" }},
				{Patch{Subject: ptr("S"), Description: ptr(""), ActiveForm: ptr("A")}, "subject description active_form",
					func(it Item) bool { return it.Subject == "S" && it.ActiveForm == "A" }},
				{Patch{Metadata: map[string]json.RawMessage{"big": json.RawMessage("null"), "y": json.RawMessage(`"v"`)}}, "metadata",
					func(it Item) bool { return len(it.Metadata) == 2 && string(it.Metadata["y"]) == `"v"` }},
			} {
				change := update(t, s, 1, c.patch)
				if got := strings.Join(change.Fields, " "); got != c.fields {
					t.Errorf("%d: fields %q, want %q", i, got, c.fields)
				}
				see(c.want)
			}
			see(func(it Item) bool { return it.Revision == 7 }) // what changes nothing is no change
			if _, err := s.Delete(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if l := list(t, s); len(l.Items) != 0 {
				t.Errorf("after deletion: %v", l.Items)
			}
			if it := create(t, s, "next"); it.ID != 2 {
				t.Errorf("the number %s was given again", it.ID)
			}
		})
	}
}

// TestSwap: a change of what is no longer as it was seen is refused.
func TestSwap(t *testing.T) {
	s := fresh(t)
	seen := create(t, s, "one")
	update(t, s, 1, Patch{Subject: ptr("two")})
	if _, err := s.Update(t.Context(), 1, Patch{Subject: ptr("three"), Revision: seen.Revision}); !errors.Is(err, ErrChanged) {
		t.Errorf("Update = %v", err)
	}
	if it, _ := list(t, s).Get(1); it.Subject != "two" {
		t.Errorf("subject %q", it.Subject)
	}
}

func TestBounds(t *testing.T) {
	s := fresh(t)
	create(t, s, "there")
	long := strings.Repeat("x", MaxLine+1)
	for _, c := range []struct {
		name  string
		draft Draft
		want  string
	}{
		{"empty", Draft{Subject: " "}, "the subject is empty"},
		{"subject", Draft{Subject: long}, "the subject has 501 bytes"},
		{"lines", Draft{Subject: "a\nb"}, "not one line"},
		{"escape", Draft{Subject: "a\x1b[2J"}, "not one line"},
		{"utf8", Draft{Subject: "a\xff"}, "not valid UTF-8"},
		{"active", Draft{Subject: "s", ActiveForm: long}, "the active form has"},
		{"owner", Draft{Subject: "s", Owner: long}, "the owner has"},
		{"description", Draft{Subject: "s", Description: strings.Repeat("x", MaxDescription+1)}, "the description has"},
		{"metadata", Draft{Subject: "s", Metadata: map[string]json.RawMessage{"k": json.RawMessage(`"` + strings.Repeat("x", MaxMetadata) + `"`)}},
			"the metadata has"},
		{"nojson", Draft{Subject: "s", Metadata: map[string]json.RawMessage{"k": json.RawMessage(`{`)}}, "is not JSON"},
		{"blocker", Draft{Subject: "s", BlockedBy: []ID{9}}, "to-do #9: no such to-do"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := s.Create(t.Context(), c.draft); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Create = %v, want %q", err, c.want)
			}
			if l := list(t, s); len(l.Items) != 1 || len(l.Problems) != 0 {
				t.Errorf("left behind: %v", l)
			}
		})
	}
	if _, err := s.Update(t.Context(), 1, Patch{Status: ptr(Status("deleted"))}); err == nil || !strings.Contains(err.Error(), "none of pending") {
		t.Errorf("a stored deletion: %v", err)
	}
	edges := make([]ID, MaxEdges+1)
	for i := range edges {
		edges[i] = create(t, s, "edge").ID
	}
	if _, err := s.Update(t.Context(), 1, Patch{AddBlockedBy: edges}); err == nil || !strings.Contains(err.Error(), "wait for 1001") {
		t.Errorf("edges: %v", err)
	}
	plant(t, s, markName, fmt.Sprint(MaxItems))
	for i := len(list(t, s).Items); i < MaxItems; i++ {
		plant(t, s, file(ID(i+1)), `{}`)
	}
	if _, err := s.Create(t.Context(), Draft{Subject: "one too many"}); err == nil || !strings.Contains(err.Error(), "as many as a list can hold") {
		t.Errorf("a full list: %v", err)
	}
	if _, err := s.Delete(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if it := create(t, s, "fits"); it.ID != MaxItems+1 {
		t.Errorf("number %s", it.ID)
	}
}

func TestParseID(t *testing.T) {
	for text, want := range map[string]ID{"1": 1, "#12": 12, "0": 0, "-1": 0, "+1": 0, "01": 0, "": 0, "#": 0, "##1": 0, "../1": 0, "1\x00": 0, "1e3": 0,
		"99999999999": 0, "9999999999999999999999": 0, strings.Repeat("1", 300): 0} {
		if got, err := ParseID(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("ParseID(%.20q) = %d, %v", text, got, err)
		}
	}
}

func TestName(t *testing.T) {
	for name, ok := range map[string]bool{"a-B_9": true, "": false, "..": false, "a/b": false, "a\x00": false, "ä": false, strings.Repeat("x", 65): false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("CheckName(%.20q) = %v", name, err)
		}
	}
	env := func(value string) func(string) string { return func(string) string { return value } }
	if name, err := ListName(env(""), "s1"); name != "s1" || err != nil {
		t.Errorf("ListName = %q, %v", name, err)
	}
	if name, err := ListName(env("team"), "s1"); name != "team" || err != nil {
		t.Errorf("ListName = %q, %v", name, err)
	}
	if _, err := ListName(env("../x"), "s1"); err == nil {
		t.Error("a path was taken for a name")
	}
}

// TestDamaged: each file that cannot be used is named, and nothing else suffers.
func TestDamaged(t *testing.T) {
	good := `{"v":1,"id":"3","subject":"s","status":"pending"}`
	for _, c := range []struct{ name, text, want string }{
		{"nothing", ``, "not JSON"},
		{"cut", good[:20], "not JSON"},
		{"two", good + good, "not JSON"},
		{"nul", "\x00\x00", "not JSON"},
		{"array", `[]`, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"version", `{"id":"3","subject":"s","status":"pending"}`, "no version"},
		{"other", strings.Replace(good, `"3"`, `"4"`, 1), "it is the file of to-do 3, and says that it is 4"},
		{"number", strings.Replace(good, `"3"`, `3`, 1), `field "id" has a wrong value`},
		{"status", strings.Replace(good, "pending", "deleted", 1), "none of pending"},
		{"subject", strings.Replace(good, `"s"`, `""`, 1), "the subject is empty"},
		{"edge", strings.Replace(good, `"status"`, `"blocked_by":["x"],"status"`, 1), `field "blocked_by" has a wrong value`},
		{"deep", strings.Repeat("[", 100_000), "not JSON"},
		{"large", `"` + strings.Repeat("x", maxFile) + `"`, "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fresh(t)
			create(t, s, "one")
			create(t, s, "two")
			plant(t, s, "3.json", c.text)
			plant(t, s, "x.json", good)
			l := list(t, s)
			if len(l.Items) != 2 || len(l.Problems) != 2 || l.Problems[0].ID != 3 || !strings.Contains(l.Problems[0].String(), "3.json") ||
				!strings.Contains(l.Problems[0].Why, c.want) || l.Problems[1].File != "x.json" {
				t.Fatalf("%d to-dos, problems %v; want %q", len(l.Items), l.Problems, c.want)
			}
			if _, err := s.Update(t.Context(), 3, Patch{Status: ptr(Completed)}); err == nil || !strings.Contains(err.Error(), "3.json") {
				t.Errorf("Update = %v", err)
			}
			if data, _ := os.ReadFile(filepath.Join(s.dir, "3.json")); string(data) != c.text {
				t.Error("the file was changed")
			}
			if it := create(t, s, "four"); it.ID != 4 {
				t.Errorf("created %s", it.ID)
			}
			if _, err := s.Delete(t.Context(), 3); err != nil {
				t.Error(err)
			}
			if l := list(t, s); len(l.Items) != 3 || len(l.Problems) != 1 {
				t.Errorf("at last %v", l)
			}
		})
	}
}

// TestPlanted: what is no regular file of ours is neither read nor written, and
// nothing waits for it.
func TestPlanted(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(`{"v":1,"id":"2","subject":"stolen","status":"pending"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]func(path string) error{
		"symlink":   func(path string) error { return os.Symlink(outside, path) },
		"hardlink":  func(path string) error { return os.Link(outside, path) },
		"fifo":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) },
		"readonly":  func(path string) error { return os.WriteFile(path, []byte("half"), 0o400) },
	}
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := fresh(t)
			create(t, s, "mine")
			at := func(name string) string { return filepath.Join(s.dir, name) }
			if err := make(at("2.json")); err != nil {
				t.Fatal(err)
			}
			if err := make(at(".tmp-3.json")); err != nil {
				t.Fatal(err)
			}
			if it := create(t, s, "after"); it.ID != 3 {
				t.Errorf("created %s", it.ID)
			}
			if l := list(t, s); len(l.Items) != 2 || len(l.Problems) != 1 || l.Problems[0].ID != 2 {
				t.Errorf("%d to-dos, problems %v", len(l.Items), l.Problems)
			}
			if kind == "readonly" {
				return
			}
			for _, name := range []string{lockName, markName} {
				if err := os.Remove(at(name)); err != nil {
					t.Fatal(err)
				}
				if err := make(at(name)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Create(t.Context(), Draft{Subject: "x"}); err == nil {
					t.Errorf("%s was used", name)
				}
				if err := os.RemoveAll(at(name)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if data, _ := os.ReadFile(outside); !strings.Contains(string(data), "stolen") {
		t.Errorf("the file outside holds %q", data)
	}
}

// TestFolder: no write where somebody else could write too.
func TestFolder(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(dir string) error
		want  string
	}{
		{"world", func(dir string) error { return errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o777)) }, "chmod go-w"},
		{"link", func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.Symlink(t.TempDir(), dir))
		}, "is a symbolic link"},
		{"file", func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.WriteFile(dir, nil, 0o600))
		}, "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fresh(t)
			if err := c.plant(s.dir); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Create(t.Context(), Draft{Subject: "x"}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Create = %v", err)
			}
			if _, err := s.List(t.Context()); err == nil {
				t.Error("it was read")
			}
		})
	}
}

// TestMark: a number is not given twice because a file is gone or broken.
func TestMark(t *testing.T) {
	s := fresh(t)
	for range 3 {
		create(t, s, "x")
	}
	if err := os.Remove(filepath.Join(s.dir, markName)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if it := create(t, s, "after"); it.ID != 4 {
		t.Errorf("without a mark: %s", it.ID)
	}
	plant(t, s, markName, "many\n")
	if _, err := s.Create(t.Context(), Draft{Subject: "x"}); err == nil || !strings.Contains(err.Error(), "last number") {
		t.Errorf("with a broken mark: %v", err)
	}
	plant(t, s, markName, "9\n") // spent by a writer that was killed
	if it := create(t, s, "after"); it.ID != 10 {
		t.Errorf("after a crash: %s", it.ID)
	}
	data, _ := os.ReadFile(filepath.Join(s.dir, "4.json"))
	plant(t, s, "11.json", strings.Replace(string(data), `"id":"4"`, `"id":"11"`, 1)) // an older folder put over a newer one
	if it := create(t, s, "after"); it.ID != 12 {
		t.Errorf("beside a file that is there: %s", it.ID)
	}
}

// TestNewer: what a newer version has added is kept; what it has changed is left
// alone.
func TestNewer(t *testing.T) {
	s := fresh(t)
	plant(t, s, "1.json", `{"v":1,"id":"1","subject":"s","status":"pending","Subject":"other","colour":{"r": 1e3},"estimate":null}`)
	plant(t, s, "2.json", `{"v":2,"id":"2","subject":"s","status":"pending"}`)
	update(t, s, 1, Patch{Status: ptr(Completed)})
	data, err := os.ReadFile(filepath.Join(s.dir, "1.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"status":"completed"`, `"subject":"s"`, `"Subject":"other"`, `"colour":{"r":1e3}`, `"estimate":null`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in %s", want, data)
		}
	}
	if l := list(t, s); len(l.Items) != 2 {
		t.Errorf("not shown: %v", l.Problems)
	}
	for name, do := range map[string]func() error{
		"update": func() error { _, err := s.Update(t.Context(), 2, Patch{Status: ptr(Completed)}); return err },
		"blocks": func() error { _, err := s.Update(t.Context(), 1, Patch{AddBlocks: []ID{2}}); return err },
		"delete": func() error { _, err := s.Delete(t.Context(), 2); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "newer Drover") {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func TestDependencies(t *testing.T) {
	s := fresh(t)
	for range 4 {
		create(t, s, "x")
	}
	c := update(t, s, 2, Patch{AddBlockedBy: []ID{1, 1}, AddBlocks: []ID{3}})
	if got := strings.Join(c.Fields, " "); got != "blocked_by blocks" {
		t.Errorf("fields %q", got)
	}
	ready := func() string {
		var out []string
		for _, it := range list(t, s).Ready() {
			out = append(out, it.ID.String())
		}
		return strings.Join(out, " ")
	}
	if got := ready(); got != "#1 #4" {
		t.Errorf("ready: %s", got)
	}
	l := list(t, s)
	three, _ := l.Get(3)
	if got := l.Blocks(2); !slices.Equal(got, []ID{3}) || !slices.Equal(l.Waits(three), []ID{2}) {
		t.Errorf("#2 blocks %v, #3 waits for %v", got, l.Waits(three))
	}
	update(t, s, 1, Patch{Status: ptr(Completed)})
	if got := ready(); got != "#2 #4" {
		t.Errorf("ready: %s", got)
	}
	if _, err := s.Delete(t.Context(), 2); err != nil { // its dependants lose the edge
		t.Fatal(err)
	}
	if got := ready(); got != "#3 #4" {
		t.Errorf("ready: %s", got)
	}
	update(t, s, 4, Patch{AddBlockedBy: []ID{3}})
	plant(t, s, "3.json", "broken") // who waits for it goes on waiting, with a cause
	l = list(t, s)
	four, _ := l.Get(4)
	if got := ready(); got != "" || !slices.Equal(l.Waits(four), []ID{3}) || len(l.Problems) != 1 {
		t.Errorf("ready: %s; #4 waits for %v; problems %v", got, l.Waits(four), l.Problems)
	}
	update(t, s, 4, Patch{BlockedBy: &[]ID{1}})
	if got := ready(); got != "#4" {
		t.Errorf("ready: %s", got)
	}
	if _, err := s.Update(t.Context(), 4, Patch{AddBlocks: []ID{3}}); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("an edge to what is broken: %v", err)
	}
	if _, err := s.Update(t.Context(), 4, Patch{AddBlocks: []ID{9}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an edge to nothing: %v", err)
	}
}

func TestCircles(t *testing.T) {
	for _, n := range []int{1, 2, 3, racetest.Rounds(10_000)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := fresh(t)
			for i := 1; i <= n; i++ { // each waits for the one before
				edge := ""
				if i > 1 {
					edge = fmt.Sprintf(`"blocked_by":["%d"],`, i-1)
				}
				plant(t, s, file(ID(i)), fmt.Sprintf(`{"v":1,"id":"%d","subject":"s",%s"status":"pending"}`, i, edge))
			}
			for name, p := range map[string]Patch{"waits": {AddBlockedBy: []ID{ID(n)}}, "set": {BlockedBy: &[]ID{ID(n)}}} {
				_, err := s.Update(t.Context(), 1, p)
				var circle *Circle
				if !errors.As(err, &circle) || len(circle.IDs) != n {
					t.Fatalf("%s: %v", name, err)
				}
				at := slices.Index(circle.IDs, 1)
				if next := circle.IDs[(at+1)%n]; next != ID(n) {
					t.Errorf("%s: #1 waits for %s in %v", name, next, err)
				}
				if len(err.Error()) > 300 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			}
			if _, err := s.Update(t.Context(), ID(n), Patch{AddBlocks: []ID{1}}); err == nil {
				t.Error("blocks: a circle was written")
			}
			l := list(t, s)
			if len(l.Problems) != 0 || len(l.Ready()) != 1 || len(l.Graph().Edges) != n-1 {
				t.Errorf("problems %v, %d ready", l.Problems, len(l.Ready()))
			}
			if tree := l.Tree(func(it Item, _ bool) string { return it.ID.String() }); strings.Count(tree, "\n") != n || len(tree) > 60*n {
				t.Errorf("a tree of %d lines and %d bytes", strings.Count(tree, "\n"), len(tree))
			}
		})
	}
}

// TestWritten: a circle that somebody wrote by hand is reported and can be fixed.
func TestWritten(t *testing.T) {
	s := fresh(t)
	for i := 1; i <= 3; i++ {
		plant(t, s, file(ID(i)), fmt.Sprintf(`{"v":1,"id":"%d","subject":"s","blocked_by":["%d"],"status":"pending"}`, i, i%2+1))
	}
	l := list(t, s)
	if len(l.Problems) != 1 || !strings.Contains(l.Problems[0].String(), "#1 waits for #2 waits for #1") || len(l.Ready()) != 0 {
		t.Errorf("problems %v, ready %v", l.Problems, l.Ready())
	}
	if tree := l.Tree(func(it Item, again bool) string { return fmt.Sprint(it.ID, again) }); tree != "#1 false\n  #2 false\n    #1 true\n    #3 false\n" {
		t.Errorf("tree %q", tree)
	}
	update(t, s, 1, Patch{BlockedBy: &[]ID{}})
	if l := list(t, s); len(l.Problems) != 0 || len(l.Ready()) != 1 {
		t.Errorf("fixed: %v", l.Problems)
	}
}

func TestTree(t *testing.T) {
	s := fresh(t)
	create(t, s, "a")
	create(t, s, "b", 1)
	create(t, s, "c", 1)
	create(t, s, "d", 2, 3)
	create(t, s, "e", 4)
	create(t, s, "f")
	got := list(t, s).Tree(func(it Item, again bool) string {
		if again {
			return it.Subject + "!"
		}
		return it.Subject
	})
	if want := "a\n  b\n    d\n      e\n  c\n    d!\nf\n"; got != want {
		t.Errorf("tree\n%s\nwant\n%s", got, want)
	}
}

func TestNudge(t *testing.T) {
	for _, c := range []struct {
		name  string
		items []Item
		want  bool
	}{
		{"two", closed("a", "b"), false},
		{"three", closed("a", "b", "c"), true},
		{"verified", closed("a", "VERIFY the build", "c"), false},
		{"unverified", closed("a", "unVerified", "c"), false},
		{"metadata-key", append(closed("a", "b"), tagged("Verification", "1")), false},
		{"metadata-value", append(closed("a", "b"), tagged("kind", `"verifier"`)), false},
		{"open", append(closed("a", "b", "c"), Item{Status: InProgress}), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			closing := Change{Before: Item{Status: InProgress}, After: Item{Status: Completed}}
			got := Nudge(closing, List{Items: c.items})
			if (got != "") != c.want {
				t.Errorf("Nudge = %q", got)
			}
			for _, to := range []Status{Completed, Pending} {
				other := Change{Before: Item{Status: Completed}, After: Item{Status: to}}
				if got := Nudge(other, List{Items: c.items}); got != "" {
					t.Errorf("a change that closes nothing: %q", got)
				}
			}
			if got := Nudge(closing, List{Items: c.items, Problems: []Problem{{ID: 9}}}); got != "" {
				t.Errorf("beside one that cannot be read: %q", got)
			}
		})
	}
	text := Nudge(Change{After: Item{Status: Completed}}, List{Items: closed("a", "b", "c", "d")})
	for _, want := range []string{"NOTE", "4", "verification step", `subagent_type "verification"`, "final summary", "PARTIAL", "caveats", "verdict"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}

func tagged(key, value string) Item {
	return Item{Status: Completed, Metadata: map[string]json.RawMessage{key: json.RawMessage(value)}}
}

func closed(subjects ...string) []Item {
	var out []Item
	for _, s := range subjects {
		out = append(out, Item{Subject: s, Status: Completed})
	}
	return out
}

// TestModel compares random histories with a map.
func TestModel(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "list")
		if err != nil {
			rt.Fatal(err)
		}
		m := &model{s: At(dir, false), items: map[ID]Item{}}
		rt.Repeat(map[string]func(*rapid.T){"create": m.create, "status": m.status, "edge": m.edge, "replace": m.replace, "delete": m.remove, "": m.check})
	})
}

type model struct {
	s     *Store
	items map[ID]Item
	last  ID
}

func (m *model) pick(t *rapid.T) ID { return ID(rapid.IntRange(1, int(m.last)+1).Draw(t, "id")) }

func (m *model) create(t *rapid.T) {
	it, err := m.s.Create(context.Background(), Draft{Subject: rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "subject")})
	if err != nil || it.ID != m.last+1 {
		t.Fatalf("Create = %s, %v after %s", it.ID, err, m.last)
	}
	m.last = it.ID
	m.items[it.ID] = it
}

// outcome compares an error with what the model says of a to-do.
func (m *model) outcome(t *rapid.T, id ID, err error) bool {
	if _, ok := m.items[id]; ok != (err == nil) || !ok && !errors.Is(err, ErrNotFound) {
		t.Fatalf("%s is there: %v; error %v", id, ok, err)
	}
	return err == nil
}

func (m *model) status(t *rapid.T) {
	id, to := m.pick(t), rapid.SampledFrom([]Status{Pending, InProgress, Completed}).Draw(t, "status")
	_, err := m.s.Update(context.Background(), id, Patch{Status: &to, By: "me"})
	if !m.outcome(t, id, err) {
		return
	}
	it := m.items[id]
	it.Status = to
	if to == InProgress {
		it.Owner = "me"
	}
	m.items[id] = it
}

func (m *model) reaches(from, to ID) bool {
	return from == to || slices.ContainsFunc(m.items[from].BlockedBy, func(id ID) bool { return m.reaches(id, to) })
}

func (m *model) edge(t *rapid.T) {
	id, other, blocks := m.pick(t), m.pick(t), rapid.Bool().Draw(t, "blocks")
	p, waiter, on := Patch{AddBlockedBy: []ID{other}}, id, other
	if blocks {
		p, waiter, on = Patch{AddBlocks: []ID{other}}, other, id
	}
	_, err := m.s.Update(context.Background(), id, p)
	if _, ok := m.items[id]; !ok {
		m.outcome(t, id, err)
		return
	}
	if _, ok := m.items[other]; !ok {
		m.outcome(t, other, err)
		return
	}
	var circle *Circle
	if m.reaches(on, waiter) {
		if !errors.As(err, &circle) {
			t.Fatalf("%s waits for %s: %v", waiter, on, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s waits for %s: %v", waiter, on, err)
	}
	it := m.items[waiter]
	it.BlockedBy = sorted(append(slices.Clone(it.BlockedBy), on))
	m.items[waiter] = it
}

func (m *model) replace(t *rapid.T) {
	id := m.pick(t)
	_, err := m.s.Update(context.Background(), id, Patch{BlockedBy: &[]ID{}})
	if !m.outcome(t, id, err) {
		return
	}
	it := m.items[id]
	it.BlockedBy = nil
	m.items[id] = it
}

func (m *model) remove(t *rapid.T) {
	id := m.pick(t)
	_, err := m.s.Delete(context.Background(), id)
	if !m.outcome(t, id, err) {
		return
	}
	delete(m.items, id)
	for other, it := range m.items {
		it.BlockedBy = slices.DeleteFunc(slices.Clone(it.BlockedBy), func(x ID) bool { return x == id })
		m.items[other] = it
	}
}

func (m *model) check(t *rapid.T) {
	l, err := m.s.List(context.Background())
	if err != nil || len(l.Problems) > 0 || len(l.Items) != len(m.items) {
		t.Fatalf("List = %d to-dos, %v, %v; want %d", len(l.Items), l.Problems, err, len(m.items))
	}
	for _, it := range l.Items {
		want := m.items[it.ID]
		if it.Subject != want.Subject || it.Status != want.Status || it.Owner != want.Owner || !slices.Equal(it.BlockedBy, want.BlockedBy) {
			t.Fatalf("%+v, want %+v", it, want)
		}
		for _, id := range it.BlockedBy { // both ends of an edge agree
			if !slices.Contains(l.Blocks(id), it.ID) {
				t.Fatalf("%s waits for %s, which blocks %v", it.ID, id, l.Blocks(id))
			}
		}
	}
}

// FuzzItem: a file is refused, or read and written without loss.
func FuzzItem(f *testing.F) {
	for _, s := range []string{
		`{"v":1,"id":"1","subject":"s","status":"pending"}`, `{}`, `null`, `{"v":9,"id":"1","subject":"\ud800","status":"completed","x":{"y":[1e999]}}`,
		`{"v":1,"id":"1","subject":"s","status":"pending","blocked_by":["2","2","1"],"metadata":{"a":null,"A":"<&>\u2028"},"v":1}`,
		`{"v":1,"id":"1","subject":"s","status":"in_progress","create_time":"2026-01-02T03:04:05.6Z","Id":"2","":0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		it, err := decode(1, data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
				t.Fatalf("not one short line: %q", err)
			}
			return
		}
		once, err := it.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(1, once)
		if err != nil {
			t.Fatalf("%v: %s became %s", err, data, once)
		}
		twice, err := again.encode()
		if err != nil || string(once) != string(twice) {
			t.Fatalf("%s became %s", once, twice)
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal(data, &before) != nil || json.Unmarshal(once, &after) != nil {
			t.Fatalf("accepted %s", data)
		}
		for name := range before {
			if _, ok := after[name]; !ok {
				t.Fatalf("field %q of %s is lost in %s", name, data, once)
			}
		}
	})
}
