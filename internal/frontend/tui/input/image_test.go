package input

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A draft that is put into an editor again is the same draft, whatever was done to get it.
func TestDraft(t *testing.T) {
	moves := []func(Editor) Editor{Editor.Left, Editor.Right, Editor.WordLeft, Editor.Home, Editor.End, Editor.Backspace,
		Editor.Delete, Editor.DeleteWord, Editor.DeleteToHome, Editor.Yank, Editor.Undo, Editor.Clear,
		func(e Editor) Editor { e, _ = e.Older(); return e }, func(e Editor) Editor { e, _ = e.Newer(); return e }}
	rapid.Check(t, func(t *rapid.T) {
		e := New([]string{"before"})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				e = e.Paste(rapid.SampledFrom([]string{"a", " ", "\n", "漢", strings.Repeat("long\n", 20)}).Draw(t, "text"))
			case 1:
				name := rapid.SampledFrom([]string{"a.png", "", "b c.gif"}).Draw(t, "name")
				e, _ = e.Attach(Image{Name: name, Data: []byte(name)})
			default:
				e = rapid.SampledFrom(moves).Draw(t, "move")(e)
			}
		}
		d := e.Draft()
		if len(d.Images) != e.Images() {
			t.Fatalf("%d images of %d", len(d.Images), e.Images())
		}
		if got := New(nil).Put(d).Draft(); !reflect.DeepEqual(got, d) {
			t.Fatalf("%+v, want %+v", got, d)
		}
		if typed := d.Typed(); strings.Contains(typed, "[image") {
			t.Fatalf("the history has %q", typed)
		}
	})
}

// What is deleted is inserted as a text when its prompt was sent: its image has gone.
func TestImageYanked(t *testing.T) {
	e, _ := New(nil).Insert("x ").Attach(Image{Name: "a.png"})
	e = e.Home().DeleteToEnd().Insert("y").Sent().Yank()
	if got := e.Draft(); got.Text != "x" || len(got.Images) > 0 {
		t.Errorf("%+v", got)
	}
}
