//go:build linux

package faults

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// After any damage a repair brings every task back, as it was or as no more than its
// output tells, and the damaged file is kept: S12.
func TestRepaired(t *testing.T) {
	p := newPlace(t)
	db := p.ended()
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	before, session := p.tasks(), filepath.Base(filepath.Dir(db))
	for _, c := range damages(whole) {
		t.Run(c.name, func(t *testing.T) {
			p := *p
			p.TB = t
			names, err := filepath.Glob(db + "*")
			for _, name := range names {
				err = errors.Join(err, os.RemoveAll(name))
			}
			if err = errors.Join(err, os.WriteFile(db, whole, 0o600), c.plant(db)); err != nil {
				t.Fatal(err)
			}
			damaged, readable := os.ReadFile(db)
			s := p.Run("sessions", "repair", session)
			switch {
			case c.name == "directory":
				p.refused(s, "not a regular file")
				return
			case strings.Contains(s.Stderr(), "newer drover"):
				p.refused(s, "--force")
				s = p.Run("sessions", "repair", "--force", session)
			}
			if s.Code() != 0 || s.Stderr() != "" {
				t.Fatal(s)
			}
			made := strings.Contains(s.Stdout(), "rebuilt its log")
			if !made && !strings.Contains(s.Stdout(), "its log is undamaged") {
				t.Errorf("it does not say what it did: %s", s)
			}
			kept, _ := filepath.Glob(db + ".damaged-*Z")
			if made && !errors.Is(readable, fs.ErrNotExist) {
				if len(kept) != 1 {
					t.Fatalf("the damaged log is not kept: %v", kept)
				}
				if data, err := os.ReadFile(kept[0]); err != nil || string(data) != string(damaged) {
					t.Errorf("what is kept is not the damaged log: %v", err)
				}
			}
			now := p.tasks()
			for id, was := range before {
				is, there := now[id]
				if !there || is.Status != was.Status && is.Status != "killed" {
					t.Errorf("%s was %s, and is %s", id, was, is)
				}
				if logs := p.Run("logs", id); logs.Code() != 0 {
					t.Error(logs)
				}
			}
			if len(now) != len(before) {
				t.Errorf("%d tasks of %d", len(now), len(before))
			}
		})
	}
	p.Good("run", "-d", "--name", "after", "--", "true")
	p.Good("wait", "after")
	if p.task("after").Session != session {
		t.Error("the detached host does not go on in the session that was repaired")
	}
}
