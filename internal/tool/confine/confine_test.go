package confine

import (
	"errors"
	"io"
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
	for link, to := range map[string]string{"in": root + "/sub", "other": extra, "evil": out, "up": "../rootout",
		"loop": "loop"} {
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
			p, err := a.Find("Read", c.path)
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
	if _, err := a.Find("Read", out); !errors.Is(err, ErrOutside) {
		t.Errorf("error %v", err)
	}
	asked := ""
	a.Outside = func(_, real string) bool { asked = real; return true }
	if p, err := a.Find("Read", out+"/x/y"); err != nil || p.Path() != out+"/x/y" || !p.Outside || asked != p.Path() {
		t.Errorf("approved outside: %v, %v; asked about %s", p, err, asked)
	}
}

// A place outside that was approved is not opened once a link stands on the way to it.
func TestOutsideReplaced(t *testing.T) {
	out := t.TempDir()
	for _, dir := range []string{"dir", "other"} {
		if err := errors.Join(os.Mkdir(filepath.Join(out, dir), 0o700),
			os.WriteFile(filepath.Join(out, dir, "f"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Area{Root: t.TempDir(), Outside: func(string, string) bool { return true }}.Find("Read", filepath.Join(out, "dir", "f"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.OpenFile(os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := errors.Join(os.Rename(filepath.Join(out, "dir"), filepath.Join(out, "was")),
		os.Symlink("other", filepath.Join(out, "dir"))); err != nil {
		t.Fatal(err)
	}
	if f, err := p.OpenFile(os.O_RDONLY, 0); err == nil {
		_ = f.Close()
		t.Error("it was opened through a link")
	}
}

// A file that must not be used is refused by every name that it has, and keeps
// its content.
func TestOpenFile(t *testing.T) {
	root := t.TempDir()
	secret := filepath.Join(root, "secret")
	for name, text := range map[string]string{"secret": "s", "open": "o"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Link(secret, filepath.Join(root, "hard")), os.Symlink("secret",
		filepath.Join(root, "soft"))); err != nil {
		t.Fatal(err)
	}
	a := Area{Root: root, MayOpen: func(f *os.File, _ bool) bool {
		got, err := f.Stat()
		want, err2 := os.Stat(secret)
		return err == nil && err2 == nil && !os.SameFile(got, want)
	}}
	for _, name := range []string{"secret", "hard", "soft"} {
		p, err := a.Find("Read", name)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := p.OpenFile(os.O_RDWR|os.O_TRUNC, 0); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: opened %v, %v", name, f, err)
		}
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "s" {
		t.Errorf("the secret is now %q, %v", data, err)
	}
	p, err := a.Find("Read", "open")
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.OpenFile(os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if data, err := io.ReadAll(f); err != nil || string(data) != "o" {
		t.Errorf("read %q, %v", data, err)
	}
}

// Somebody swaps a folder for a link while its files are opened: nothing outside
// is ever opened (O10).
func TestSwap(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, out := filepath.Join(base, "root"), filepath.Join(base, "out")
	for dir, text := range map[string]string{filepath.Join(root, "d"): "inside", out: "outside"} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "x"), []byte(text),
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(out, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		d, l, spare := filepath.Join(root, "d"), filepath.Join(root, "link"), filepath.Join(root, "spare")
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = errors.Join(os.Rename(d, spare), os.Rename(l, d), os.Rename(d, l), os.Rename(spare, d))
		}
	}()
	opened := 0
	for range 20_000 {
		p, err := (Area{Root: root}).Find("Read", "d/x")
		if err != nil {
			continue
		}
		f, err := p.OpenFile(os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		opened++
		data, err := io.ReadAll(f)
		_ = f.Close()
		if err != nil || string(data) != "inside" {
			t.Fatalf("read %q, %v", data, err)
		}
	}
	close(stop)
	<-done
	if opened == 0 {
		t.Error("nothing was ever opened")
	}
}
