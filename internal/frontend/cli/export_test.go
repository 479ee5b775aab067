package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/project"
)

// Export is a conversation of few words; sessions that have ended have none.
func (f fakeProject) Export(_ context.Context, out io.Writer, info control.Info, form project.Form) error {
	if !info.Live {
		return fmt.Errorf("read transcript: %w", fs.ErrNotExist)
	}
	if form == project.JSON {
		_, _ = io.WriteString(out, "[half")
		return errors.New("the disk is gone")
	}
	for _, part := range []string{string(form), " of ", string(info.Session), " \u202e", "\n", "second"} {
		if _, err := io.WriteString(out, part); err != nil {
			return err
		}
	}
	return nil
}

func TestExport(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh, half := filepath.Join(dir, "fresh"), filepath.Join(dir, "half")
	for _, c := range []struct {
		name     string
		words    []string
		terminal bool
		code     int
		out, err string
	}{
		{name: "markdown", words: []string{"slive"}, out: "md of slive0000 \u202e\nsecond"}, // whoever makes it makes it harmless
		{name: "lines", words: []string{"--format=jsonl", "slive0000"}, out: "jsonl of slive0000 \u202e\nsecond"},
		{name: "terminal", words: []string{"--format", "jsonl", "slive0000"}, terminal: true, out: "jsonl of slive0000 \\u202e\nsecond"},
		{name: "file", words: []string{"-o", fresh, "slive0000"}},
		{name: "exists", words: []string{"-o", there, "slive0000"}, code: 1, err: "the file exists"},
		{name: "half", words: []string{"--format=json", "-o", half, "slive0000"}, code: 1, err: "the disk is gone"},
		{name: "no-folder", words: []string{"-o", filepath.Join(dir, "no", "file"), "slive0000"}, code: 1, err: "no such file"},
		{name: "no-conversation", words: []string{"sdead0000"}, code: 3, err: "session sdead0000 has no conversation"},
		{name: "unknown", words: []string{"snone0000"}, code: 3, err: "no session"},
		{name: "ambiguous", words: []string{"s"}, code: 2, err: "could be any of"},
		{name: "form", words: []string{"--format=pdf", "slive0000"}, code: 2, err: "use md, jsonl or json"},
		{name: "none", code: 2, err: "arg"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := sample()
			w.terminal = c.terminal
			got := w.do(t, append([]string{"sessions", "export"}, c.words...)...)
			if got.code != c.code || got.out != c.out || !strings.Contains(got.err, c.err) || c.err == "" && got.err != "" {
				t.Errorf("%+v", got)
			}
		})
	}
	if data, err := os.ReadFile(fresh); err != nil || string(data) != "md of slive0000 \u202e\nsecond" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	if info, err := os.Stat(fresh); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if data, err := os.ReadFile(there); err != nil || string(data) != "mine" {
		t.Errorf("the file that was there holds %q, %v", data, err)
	}
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a file is left: %v", err)
	}
}
