package confine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFind(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, extra, out := filepath.Join(base, "root"), filepath.Join(base, "extra"), filepath.Join(base, "rootout")
	for _, d := range []string{root + "/sub", extra, out} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"in": root + "/sub", "other": extra, "evil": out, "up": "../rootout", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	alias := filepath.Join(base, "alias")
	if err := os.Symlink(root, alias); err != nil {
		t.Fatal(err)
	}
	a := Area{Root: alias, Dirs: []string{extra, filepath.Join(base, "gone")}}
	for _, c := range []struct{ name, path, want string }{
		{"relative", "sub/x", root + "/sub/x"},
		{"absolute", root + "/sub/x", root + "/sub/x"},
		{"alias", alias + "/new/deep", root + "/new/deep"},
		{"self", ".", root},
		{"link", "in/x", root + "/sub/x"},
		{"extra", "other/x", extra + "/x"},
		{"outside", out + "/x", ""},
		{"evil", "evil/x", ""},
		{"up", "up/x", ""},
		{"dots", "sub/../../rootout/x", ""},
		{"sibling", root + "out", ""},
		{"nul", "a\x00b", ""},
		{"loop", "loop/x", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := a.Find(c.path)
			if c.want == "" {
				if err == nil {
					t.Fatalf("found %s", p.Path())
				}
				return
			}
			if err != nil || p.Path() != c.want {
				t.Fatalf("found %s, %v; want %s", p.Path(), err, c.want)
			}
		})
	}
	if _, err := a.Find(out); !errors.Is(err, ErrOutside) {
		t.Errorf("error %v", err)
	}
	if p, err := (Area{Root: root, Anywhere: true}).Find(out + "/x"); err != nil || p.Path() != out+"/x" {
		t.Errorf("anywhere: %v, %v", p, err)
	}
}
