package change

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
)

const patch = `diff --git a/a b/a
index 1..2 100644
--- a/a
+++ b/a
@@ -1,3 +1,3 @@ func main() {
 one
-two
+2
 three
\ No newline at end of file
@@ -9 +9,2 @@
--- dashes
+++ plusses
+diff --git a/x b/x
diff --git a/bin b/bin
index 1..2 100644
Binary files a/bin and b/bin differ
`

func TestHunks(t *testing.T) {
	parts := split(patch)
	if len(parts) != 2 || strings.Join(parts, "") != patch {
		t.Fatalf("parts %q", parts)
	}
	list, cut := parse(parts[0], 100)
	if cut || len(list) != 2 || list[0].Section != "func main() {" || len(list[0].Lines) != 4 || len(list[1].Lines) != 3 {
		t.Fatalf("hunks %+v, cut %v", list, cut)
	}
	if l := list[0].Lines[1]; l != (control.DiffLine{Kind: "-", Old: 2, Text: "two"}) {
		t.Errorf("line %+v", l)
	}
	if l := list[0].Lines[3]; l != (control.DiffLine{Kind: " ", Old: 3, New: 3, Text: "three"}) {
		t.Errorf("line %+v", l)
	}
	if l := list[1].Lines[0]; l != (control.DiffLine{Kind: "-", Old: 9, Text: "-- dashes"}) {
		t.Errorf("line %+v", l)
	}
	if l := list[1].Lines[2]; l != (control.DiffLine{Kind: "+", New: 10, Text: "diff --git a/x b/x"}) {
		t.Errorf("line %+v", l)
	}
	// A hunk that does not fit is left out as a whole, and so is what comes behind it.
	if list, cut := parse(parts[0], 5); !cut || len(list) != 1 {
		t.Errorf("of 5 lines: %d hunks, cut %v", len(list), cut)
	}
	d := control.Diff{Files: make([]control.DiffFile, 2)}
	hunks(&d, []byte(patch))
	if d.Cut || len(d.Files[0].Hunks) != 2 || d.Files[1].Hunks != nil {
		t.Errorf("diff %+v", d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(patch, 10)
	f.Add("@@ -1 +1 @@\n\n+", 1)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if strings.Join(split(text), "") != text {
			t.Error("split loses something")
		}
		list, _ := parse(text, most)
		n := 0
		for _, h := range list {
			n += len(h.Lines)
		}
		if n > max(most, 0) {
			t.Errorf("%d lines of %d", n, most)
		}
	})
}
