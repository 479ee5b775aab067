package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/racetest"
)

// sequence is an attempt that needs several starts, or somebody outside between them.
type sequence struct {
	name   string
	bound  string // that must hold
	bounds func(p place) Bounds
	before func(p place) error // outside, before the room is opened
	first  string              // the first command
	then   func(p place) error // outside, between the commands
	second string              // the second command
	file   func(p place) string
	want   string // content of the file afterwards; empty: there is none
	silent string // what no output may contain
}

func sequences() []sequence {
	config := func(p place) string { return p.work + "/.git/config" }
	outside := func(p place) string { return p.other + "/file" }
	inside := func(p place) Bounds { return Bounds{Write: []string{p.dir, p.work}, Fixed: p.bounds.Fixed} }
	return []sequence{
		{
			name: "a folder below another that may be written is replaced by a symlink", bound: "write",
			bounds: func(p place) Bounds { return Bounds{Write: []string{p.work, p.work + "/sub"}} },
			before: func(p place) error { return os.Mkdir(p.work+"/sub", 0o700) },
			first:  "mv sub s2; ln -s ../other sub", second: "echo evil > sub/file",
			file: outside, want: "content of file\n",
		},
		{
			name: "the folder above such a one is replaced by a symlink", bound: "write",
			bounds: func(p place) Bounds { return Bounds{Write: []string{p.work, p.work + "/a/other"}} },
			before: func(p place) error { return os.MkdirAll(p.work+"/a/other", 0o700) },
			first:  "mv a b; ln -s .. a", second: "echo evil > ../other/file",
			file: outside, want: "content of file\n",
		},
		{
			name: "the workspace in a folder that may be written is replaced", bound: "protected", bounds: inside,
			first: "cd .. && mv work w2 && mkdir -p work/.git && echo evil > work/.git/config", second: "cd .. && rm -rf work",
			file: config, want: "content of config\n",
		},
		{
			name: "a protected file that is a symlink is replaced", bound: "protected",
			before: func(p place) error { return linked(config(p), "../../other/config") },
			first:  "rm .git/config; echo evil > .git/config", second: "ln -sf /dev/null .git/config",
			file: config, want: "content of config\n",
		},
		{
			name: "a protected symlink leads to a file in the workspace", bound: "protected",
			before: func(p place) error { return linked(config(p), "../real/config") },
			first:  "echo evil > real/config", second: "mv real r2; mkdir real; echo evil > real/config",
			file: config, want: "content of config\n",
		},
		{
			name: "a chain of symlinks to a protected file is bent", bound: "protected",
			before: func(p place) error {
				if err := linked(config(p), "../middle"); err != nil {
					return err
				}
				return linked(p.work+"/middle", "other/config")
			},
			first: "ln -sfn file middle", second: "rm -f middle; echo evil > middle",
			file: config, want: "content of config\n",
		},
		{
			name: "a protected file is replaced from outside", bound: "protected",
			first: "true",
			then: func(p place) error {
				if err := os.WriteFile(p.work+"/.git/c", []byte("content of new config\n"), 0o600); err != nil {
					return err
				}
				return os.Rename(p.work+"/.git/c", config(p))
			},
			second: "echo evil > .git/config", file: config, want: "content of new config\n",
		},
		{
			name: "a protected folder is replaced from outside", bound: "protected",
			first: "true",
			then: func(p place) error {
				if err := os.Rename(p.work+"/.git", p.work+"/.old"); err != nil {
					return err
				}
				if err := os.MkdirAll(p.work+"/.git/hooks", 0o700); err != nil {
					return err
				}
				return os.WriteFile(config(p), []byte("content of new config\n"), 0o600)
			},
			second: "echo evil > .git/config; mv .git .g; mkdir .git; echo evil > .git/config",
			file:   config, want: "content of new config\n",
		},
		{
			name: "a hard link to a protected file was made before", bound: "protected",
			before: func(p place) error { return os.Link(p.other+"/file", p.other+"/link") },
			first:  "ln .git/config l && echo evil > l", second: "cp -l .git/config l2 && echo evil > l2",
			file: config, want: "content of config\n",
		},
		{
			name: "a secret lies below a protected folder", bound: "read",
			bounds: func(p place) Bounds {
				return Bounds{Write: []string{filepath.Dir(p.dir)}, Fixed: []string{p.dir}}
			},
			first: "cat ../secret/key", second: "cat ../secret/key ../token", silent: "content of",
		},
		{
			name: "a secret lies below a folder that may be written", bound: "read",
			bounds: func(p place) Bounds { return Bounds{Write: []string{p.dir, p.secret}} },
			first:  "cat ../secret/key; mv ../secret ../s2; cat ../s2/key", second: "cat ../secret/key ../s2/key", silent: "content of",
		},
		{
			name: "a secret is replaced from outside", bound: "read", first: "cat ../token ../secret/key",
			then: func(p place) error {
				if err := os.WriteFile(p.token+"2", []byte("content of the new token"), 0o600); err != nil {
					return err
				}
				if err := os.Rename(p.token+"2", p.token); err != nil {
					return err
				}
				if err := os.Rename(p.secret, p.other+"/old"); err != nil {
					return err
				}
				if err := os.Mkdir(p.secret, 0o700); err != nil {
					return err
				}
				return os.WriteFile(p.secret+"/key", []byte("content of the new key"), 0o600)
			},
			second: "cat ../token ../secret/key", silent: "content of",
		},
		{
			name: "a secret is made after the room", bound: "read",
			before: func(p place) error { return errors.Join(os.Remove(p.token), os.RemoveAll(p.secret)) },
			first:  "true",
			then: func(p place) error {
				if err := os.Mkdir(p.secret, 0o700); err != nil {
					return err
				}
				return errors.Join(os.WriteFile(p.token, []byte("content of the token"), 0o600),
					os.WriteFile(p.secret+"/key", []byte("content of the key"), 0o600))
			},
			second: "cat ../token ../secret/key", silent: "content of",
		},
		{
			name: "a folder that may be written is made anew", bound: "write",
			bounds: func(p place) Bounds { return Bounds{Write: []string{p.work, p.dir + "/fresh"}} },
			before: func(p place) error { return os.Mkdir(p.dir+"/fresh", 0o700) },
			first:  "echo bad > ../fresh/file",
			then: func(p place) error {
				return errors.Join(os.RemoveAll(p.dir+"/fresh"), os.Mkdir(p.dir+"/fresh", 0o700))
			},
			second: "echo good > ../fresh/file",
			file:   func(p place) string { return p.dir + "/fresh/file" }, want: "good\n",
		},
		{
			name: "a folder that may be written lies below a protected one", bound: "write",
			bounds: func(p place) Bounds {
				return Bounds{Write: []string{p.work, p.work + "/.git/hooks/mine"}, Fixed: p.bounds.Fixed}
			},
			before: func(p place) error { return os.Mkdir(p.work+"/.git/hooks/mine", 0o700) },
			first:  "echo good > .git/hooks/mine/file; echo evil > .git/hooks/file", second: "echo evil > ../other/file",
			file: func(p place) string { return p.work + "/.git/hooks/mine/file" }, want: "good\n",
		},
	}
}

// linked moves a file to where a symlink in its place leads.
func linked(file, target string) error {
	to := target
	if !strings.HasPrefix(target, "/") {
		to = file[:strings.LastIndex(file, "/")+1] + target
	}
	if err := os.MkdirAll(to[:strings.LastIndex(to, "/")], 0o700); err != nil {
		return err
	}
	if err := os.Rename(file, to); err != nil {
		return err
	}
	return os.Symlink(target, file)
}

// TestBetween makes attempts that need several starts: what was bound once is bound again.
func TestBetween(t *testing.T) {
	asUser(t)
	offer := Probe()
	for _, s := range sequences() {
		for name, o := range map[string]Offer{
			"full": offer, "namespaces without Landlock": offer.Mask(0, true), "Landlock without namespaces": offer.Mask(9, false),
		} {
			if racetest.Rounds(10) != 10 && name != "full" {
				continue // a room takes half a second to open
			}
			t.Run(s.name+"/"+name, func(t *testing.T) { s.run(t, o) })
		}
	}
}

func (s sequence) run(t *testing.T, o Offer) {
	p := newPlace(t)
	b := p.bounds
	if s.bounds != nil {
		b = s.bounds(p)
	}
	if s.before != nil {
		if err := s.before(p); err != nil {
			t.Fatal(err)
		}
	}
	var room *Room
	if o.Room == nil {
		room = p.room(t, o)
	}
	fork, held, err := In(room, o, b)
	if err != nil {
		t.Fatal(err)
	}
	if s.bound == "protected" && held.Protected == "" || s.bound == "read" && held.Read == "" {
		return // it is said not to hold
	}
	out := run(t, fork, p.work, "sh", "-c", s.first).out
	if s.bound == "read" && room != nil {
		// What was looked at long ago is not looked at again as long as its folder is the same.
		for _, line := range []string{"sleep 0.2", "true", s.first} {
			out += run(t, fork, p.work, "sh", "-c", line).out
		}
	}
	if s.then != nil {
		if err := s.then(p); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, fork, p.work, "sh", "-c", s.second)
	if r.err != nil {
		t.Errorf("the second command does not start: %v", r.err)
	}
	if out += r.out; s.silent != "" && strings.Contains(out, s.silent) {
		t.Errorf("the commands print %q", out)
	}
	if s.file == nil {
		return
	}
	if got, err := os.ReadFile(s.file(p)); fmt.Sprint(string(got)) != s.want {
		t.Errorf("the file has %q, want %q (%v); the commands print %q", got, s.want, err, out)
	}
}
