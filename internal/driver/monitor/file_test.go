package monitor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/task"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add writes at the end of a file, which is made if it is not there.
func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, errors.Join(err, f.Close()))
}

// follow begins to watch a file, and returns when it is watched.
func follow(t *testing.T, c monitor.Client, path string) *watching {
	t.Helper()
	x := watch(t, c, monitor.Watch{File: path})
	limit := time.After(patience)
	for tick := time.NewTicker(time.Millisecond); ; { // there is no event for the first progress
		if x.Host.Record().Progress != nil {
			tick.Stop()
			return x
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it does not begin")
		}
	}
}

// What is added to a file is told, whatever becomes of the file meanwhile.
func TestFile(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, x func() *watching, path string){
		"grows": func(t *testing.T, x func() *watching, path string) {
			add(t, path, "old\n")
			w := x()
			add(t, path, "one\ntw")
			w.hears("one")
			add(t, path, "o\n")
			w.hears("two")
			if p := w.Printed(); p != "one\ntwo\n" {
				t.Errorf("the output is %q", p)
			}
		},
		"later": func(t *testing.T, x func() *watching, path string) {
			w := x()
			add(t, filepath.Join(filepath.Dir(path), "other"), "not this\n")
			add(t, path, "one\n")
			w.hears("one")
		},
		"moved": func(t *testing.T, x func() *watching, path string) {
			add(t, path, "old\n")
			w := x()
			add(t, path, "one\n")
			must(t, os.Rename(path, path+".1"))
			add(t, path+".1", "two\n")
			add(t, path, "three\n")
			w.hears("one", "two", "three")
		},
		"replaced": func(t *testing.T, x func() *watching, path string) {
			add(t, path, "old\n")
			w := x()
			add(t, path+".new", "one\n")
			must(t, os.Rename(path+".new", path))
			w.hears("one")
			must(t, os.Remove(path))
			add(t, path, "two\n")
			w.hears("two")
		},
		"shortened": func(t *testing.T, x func() *watching, path string) {
			add(t, path, "something that is long\n")
			w := x()
			must(t, os.Truncate(path, 0))
			add(t, path, "one\n")
			w.hears("one")
		},
		"linked": func(t *testing.T, x func() *watching, path string) {
			add(t, path+".1", "old\n")
			must(t, os.Symlink(filepath.Base(path)+".1", path))
			w := x()
			add(t, path+".1", "one\n")
			w.hears("one")
		},
		"linked below": func(t *testing.T, x func() *watching, path string) {
			below := filepath.Join(filepath.Dir(path), "below")
			must(t, os.Mkdir(below, 0o700))
			add(t, filepath.Join(below, "f"), "old\n")
			must(t, os.Symlink("below/f", path))
			w := x()
			add(t, filepath.Join(below, "f"), "one\n")
			w.hears("one")
		},
		"deleted": func(t *testing.T, x func() *watching, path string) {
			add(t, path, "old\n")
			w := x()
			add(t, path, "the last")
			must(t, os.Remove(path))
			o := w.wait()
			if o.err != nil || o.res.Text != "The file is gone. 1 event in 1 line." {
				t.Errorf("%q, %v", o.res.Text, o.err)
			}
			w.told <- "end"
			w.hears("the last", "end")
		},
		"folder": func(t *testing.T, x func() *watching, path string) {
			add(t, path, "old\n")
			w := x()
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".1"))
			if o := w.wait(); o.err != nil || !strings.HasPrefix(o.res.Text, "The file is gone. ") {
				t.Errorf("%q, %v", o.res.Text, o.err)
			}
		},
		"stopped": func(t *testing.T, x func() *watching, path string) {
			w := x()
			w.end(task.ErrStopRequested)
			if o := w.wait(); !errors.Is(o.err, task.ErrStopRequested) {
				t.Errorf("%v", o.err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "logs")
			must(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, "app.log")
			test(t, func() *watching { return follow(t, monitor.Client{}, path) }, path)
		})
	}
}

// What is no regular file, lies elsewhere or is denied is not read, neither at
// the beginning nor when it comes later.
func TestFileRefused(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, path string){
		"pipe":   func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) },
		"folder": func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
		"device": func(t *testing.T, path string) { must(t, os.Symlink("/dev/zero", path)) },
		"out":    func(t *testing.T, path string) { must(t, os.Symlink("../secret", path)) },
		"denied": func(t *testing.T, path string) { add(t, path, "secret\n") },
	} {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			add(t, filepath.Join(outer, "secret"), "secret\n")
			dir := filepath.Join(outer, "in")
			must(t, os.Mkdir(dir, 0o700))
			c := monitor.Client{MayOpen: func(f *os.File) bool { return name != "denied" }}
			later := follow(t, c, filepath.Join(dir, "later"))
			make(t, filepath.Join(dir, "later"))
			make(t, filepath.Join(dir, "now"))
			for _, w := range []*watching{later, watch(t, c, monitor.Watch{File: filepath.Join(dir, "now")})} {
				if o := w.wait(); o.err == nil || len(w.told) > 0 || w.Printed() != "" {
					t.Errorf("read %q, %q, %v", w.Printed(), o.res.Text, o.err)
				}
			}
		})
	}
}
