package saferoot

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plant makes trusted/a/b/file, and beside trusted the same with another file.
func plant(t *testing.T) (d Dir, foreign string) {
	t.Helper()
	top := t.TempDir()
	for _, at := range []string{"trusted", "foreign"} {
		must(t, os.MkdirAll(filepath.Join(top, at, "a", "b"), 0o700))
		must(t, os.WriteFile(filepath.Join(top, at, "a", "b", "file"), []byte(at), 0o600))
	}
	return Dir(filepath.Join(top, "trusted")), filepath.Join(top, "foreign")
}

func (d Dir) path(rel string) string { return filepath.Join(string(d), rel) }

// A link in any place below the folder is an error for everything that is done by
// way of it, also one that stays inside; and nothing behind it is touched.
func TestPlanted(t *testing.T) {
	for _, level := range []string{"a", "a/b"} {
		for _, inside := range []bool{false, true} {
			d, foreign := plant(t)
			behind := filepath.Join(foreign, level)
			must(t, os.Rename(d.path(level), d.path("moved")))
			if inside {
				behind = d.path("moved")
			}
			must(t, os.Symlink(behind, d.path(level)))
			for what, do := range map[string]func() error{
				"open":       func() error { _, err := d.Open(d.path("a/b/file"), os.O_RDWR, 0); return err },
				"create":     func() error { _, err := d.Open(d.path("a/b/new"), os.O_RDWR|os.O_CREATE, 0o600); return err },
				"folder":     func() error { _, err := d.Folder(d.path("a/b")); return err },
				"names":      func() error { _, err := d.Names(d.path("a/b")); return err },
				"lstat":      func() error { _, err := d.Lstat(d.path("a/b/file")); return err },
				"mkdir":      func() error { return d.Mkdir(d.path("a/b/new")) },
				"remove":     func() error { return d.Remove(d.path("a/b/file")) },
				"remove all": func() error { return d.RemoveAll(d.path("a/b/file")) },
				"rename":     func() error { return d.Rename(d.path("a/b/file"), d.path("file")) },
				"rename to":  func() error { return d.Rename(d.path("moved"), d.path("a/b/moved")) },
			} {
				if err := do(); !errors.Is(err, unix.ELOOP) {
					t.Errorf("%s with a link at %s, inside %v: %v", what, level, inside, err)
				}
			}
			for _, dir := range []string{foreign + "/a/b", filepath.Join(d.path("moved"), map[string]string{"a": "b"}[level])} {
				if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
					t.Errorf("%s: %v, %v", dir, left, err)
				}
			}
		}
	}
}

// In the last place a link is neither opened nor followed: it is removed and renamed
// itself.
func TestLinkItself(t *testing.T) {
	d, foreign := plant(t)
	link := d.path("a/link")
	must(t, os.Symlink(filepath.Join(foreign, "a"), link))
	for name, open := range map[string]func(string) (*os.File, error){
		"read":   func(p string) (*os.File, error) { return d.Open(p, os.O_RDONLY, 0) },
		"create": func(p string) (*os.File, error) { return d.Open(p, os.O_RDWR|os.O_CREATE, 0o600) },
		"folder": func(p string) (*os.File, error) { return d.Open(p, os.O_RDONLY|unix.O_DIRECTORY, 0) },
	} {
		if f, err := open(link); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	info, err := d.Lstat(link)
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("%v, %v", info, err)
	}
	must(t, d.Rename(link, d.path("other")))
	must(t, d.RemoveAll(d.path("other")))
	if left, err := os.ReadDir(filepath.Join(foreign, "a")); err != nil || len(left) != 1 {
		t.Errorf("what the link led to: %v, %v", left, err)
	}
}

// The trusted folder may be a link; what is not below it by its letters is refused.
func TestTrusted(t *testing.T) {
	d, _ := plant(t)
	link := Dir(string(d) + "-link")
	must(t, os.Symlink(string(d), string(link)))
	f, err := link.Open(link.path("a/b/file"), os.O_RDONLY, 0)
	must(t, err)
	data, err := io.ReadAll(f)
	if must(t, f.Close()); string(data) != "trusted" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	for _, path := range []string{d.path("../foreign/a/b/file"), string(d) + "x", "/", ""} {
		if _, err := d.Open(path, os.O_RDONLY, 0); err == nil {
			t.Errorf("%q was opened", path)
		}
	}
	if names, err := d.Names(string(d)); err != nil || len(names) != 1 || names[0] != "a" {
		t.Errorf("%v, %v", names, err)
	}
	near := Near(d.path("a/b/file"))
	if _, err := near.Lstat(d.path("a/b/file")); err != nil || near != Dir(d.path("a")) {
		t.Errorf("%s: %v", near, err)
	}
}

// Files are made, moved and removed as by their paths, with the same errors.
func TestWork(t *testing.T) {
	d, _ := plant(t)
	must(t, d.Mkdir(d.path("c")))
	if err := d.Mkdir(d.path("c")); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	f, err := d.Open(d.path("c/new"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	must(t, err)
	_, err = f.WriteString("12345")
	must(t, errors.Join(err, f.Close()))
	must(t, d.Rename(d.path("c/new"), d.path("a/b/file"))) // which is replaced
	info, err := d.Lstat(d.path("a/b/file"))
	if err != nil || info.Size() != 5 || info.Mode() != 0o640 || info.IsDir() || info.ModTime().IsZero() || info.Name() != "file" {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := d.Lstat(d.path("c")); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	must(t, syscall.Mkfifo(d.path("a/pipe"), 0o600))
	if info, err := d.Lstat(d.path("a/pipe")); err != nil || info.Mode() != fs.ModeNamedPipe|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := d.Remove(d.path("a")); !errors.Is(err, unix.ENOTEMPTY) {
		t.Error(err)
	}
	for _, path := range []string{"c", "a/pipe"} {
		must(t, d.Remove(d.path(path)))
		if err := d.Remove(d.path(path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a second time: %v", err)
		}
	}
	for range 2 {
		must(t, d.RemoveAll(d.path("a")))
	}
	must(t, d.RemoveAll(d.path("none/at/all")))
	if names, err := d.Names(string(d)); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// A folder that is open stays the one it was, and takes single names only.
func TestFolder(t *testing.T) {
	d, foreign := plant(t)
	f, err := d.Folder(d.path("a/b"))
	must(t, err)
	defer f.Close()
	must(t, os.Rename(d.path("a"), d.path("moved")))
	must(t, os.Symlink(filepath.Join(foreign, "a"), d.path("a")))
	tmp, err := f.Temporary(".file-")
	must(t, err)
	must(t, tmp.Close())
	must(t, f.Rename(filepath.Base(tmp.Name()), f, "renamed"))
	must(t, f.Symlink("renamed", "link"))
	if to, err := os.Readlink(d.path("moved/b/link")); to != "renamed" || err != nil {
		t.Errorf("%q, %v", to, err)
	}
	if _, err := f.Folder("link"); !errors.Is(err, unix.ELOOP) {
		t.Error(err)
	}
	for _, name := range []string{"", "..", "../b", "b/c", "/etc"} {
		if err := f.Mkdir(name); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
	for range 2 {
		if names, err := f.Names(); err != nil || len(names) != 3 {
			t.Errorf("%v, %v", names, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(foreign, "a", "b")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// Systems without openat2 open what the others open, and refuse what they refuse.
func TestWalk(t *testing.T) {
	d, foreign := plant(t)
	must(t, os.Symlink("b", d.path("a/inside")))
	must(t, os.Symlink(foreign, d.path("outside")))
	at, err := unix.Open(string(d), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(at)
	for _, rel := range []string{".", "a", "a/b", "a/b/file", "a/inside", "a/inside/file", "outside/a/b/file", "none", "none/file", "a/b/file/x"} {
		for _, flags := range []int{unix.O_RDONLY, unix.O_RDONLY | unix.O_DIRECTORY, unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL} {
			var errs [2]error
			for i, open := range []func(int, string, int, uint32) (int, error){descend, walk} {
				fd, err := open(at, rel, flags, 0o600)
				if errs[i] = err; err == nil {
					must(t, unix.Close(fd))
				}
				if rel == "none" && flags&unix.O_CREAT != 0 && err == nil {
					must(t, os.Remove(d.path(rel)))
				}
			}
			if errs[0] != errs[1] {
				t.Errorf("%s with flags %x: %v, and element by element %v", rel, flags, errs[0], errs[1])
			}
		}
	}
}

// All files are told of, also where there are more than are read at once, and none
// behind a link.
func TestFiles(t *testing.T) {
	d, foreign := plant(t)
	must(t, os.Symlink(foreign, d.path("link")))
	for n := range 2*piece + 3 {
		must(t, os.WriteFile(d.path("a/b/"+strconv.Itoa(n)), []byte("x"), 0o600))
	}
	f, err := d.Folder(string(d) + "/a")
	must(t, err)
	defer f.Close()
	for range 2 { // it can be done again
		files, bytes := 0, int64(0)
		f.Files(func(info fs.FileInfo) {
			files++
			bytes += info.Size()
		})
		if want := 2*piece + 3; files != want+1 || bytes != int64(want+len("trusted")) {
			t.Errorf("%d files of %d bytes", files, bytes)
		}
	}
}
