package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/quick"
	"unicode/utf8"
)

func mkfifo(t *testing.T, path string) { t.Helper(); ok(t, syscall.Mkfifo(path, 0o600)) }

func TestBoard(t *testing.T) {
	s, ctx := at(t), context.Background()
	if b, err := s.Board(); err != nil || len(b.Entries) != 0 {
		t.Fatalf("a board that is not there: %+v, %v", b, err)
	}
	one, err := s.Add(ctx, "rem-agent", " builds with make\n", "Build", "build")
	ok(t, err)
	two, err := s.Add(ctx, "user", "prefers short answers")
	ok(t, err)
	b, err := At(s.Dir()).Board()
	ok(t, err)
	if len(b.Entries) != 2 || b.Entries[0].Text != "builds with make" || b.Entries[0].By != "rem-agent" || fmt.Sprint(b.Entries[0].Tags) != "[build]" || b.Entries[1].ID != two.ID {
		t.Errorf("board %+v", b.Entries)
	}
	if _, err := s.Prune(ctx, one.ID, "nobody"); !errors.Is(err, ErrNoEntry) {
		t.Errorf("an unknown ID gives %v", err)
	}
	if b, _ := s.Board(); len(b.Entries) != 2 {
		t.Error("a prune that was refused has taken something")
	}
	gone, err := s.Prune(ctx, one.ID)
	if b, _ := s.Board(); err != nil || len(gone) != 1 || gone[0].Text != "builds with make" || len(b.Entries) != 1 || b.Entries[0].ID != two.ID {
		t.Errorf("pruned %+v, %v; left %+v", gone, err, b.Entries)
	}
	if info, err := os.Stat(s.Dir() + "/" + boardName); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(s.Dir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the folder %v, %v", info.Mode(), err)
	}
}

func TestBoardRefuses(t *testing.T) {
	s, ctx := at(t), context.Background()
	for name, c := range map[string]struct {
		text string
		tags []string
		says string
	}{
		"empty":    {" \n", nil, "empty"},
		"long":     {strings.Repeat("x", MaxText+1), nil, "2001 bytes"},
		"broken":   {"\xff", nil, "UTF-8"},
		"nul":      {"a\x00b", nil, "UTF-8"},
		"tag":      {"x", []string{"two words"}, "no tag"},
		"emptytag": {"x", []string{""}, "no tag"},
		"tags":     {"x", strings.Split("a b c d e f g h i", " "), "9 tags"},
	} {
		if _, err := s.Add(ctx, "x", c.text, c.tags...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := s.Board(); err != nil || len(b.Entries) != 0 {
		t.Errorf("what was refused is on the board: %+v, %v", b.Entries, err)
	}
}

// A board that is full says what could go, and takes a note again after that went.
func TestBoardFull(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		fits int
	}{"entries": {"x", MaxEntries}, "bytes": {strings.Repeat("y", MaxText), 15}} {
		t.Run(name, func(t *testing.T) {
			s, ctx := at(t), context.Background()
			var file strings.Builder
			for i := range c.fits {
				fmt.Fprintf(&file, "{\"id\":\"n%d\",\"at\":\"2026-01-01T00:00:00Z\",\"by\":\"x\",\"text\":%q}\n", i, c.text)
			}
			put(t, s, boardName, file.String())
			_, err := s.Add(ctx, "x", c.text)
			if err == nil || !strings.Contains(err.Error(), "full") || !strings.Contains(err.Error(), "n0, n1, n2") {
				t.Fatalf("it gives %v", err)
			}
			_, err = s.Prune(ctx, "n0")
			ok(t, err)
			_, err = s.Add(ctx, "x", c.text)
			ok(t, err)
			if b, _ := s.Board(); b.Bytes > MaxBoard || len(b.Entries) > MaxEntries {
				t.Errorf("%d bytes, %d entries", b.Bytes, len(b.Entries))
			}
		})
	}
}

// Lines that cannot be read stay where they are; a last one that was cut off is set
// aside, and nothing else is lost.
func TestBoardTorn(t *testing.T) {
	const good = `{"id":"aaa","at":"2026-01-01T00:00:00Z","by":"x","text":"first","extra":"kept"}`
	for name, c := range map[string]struct {
		file, left, torn string
		entries          int
	}{
		"torn":       {good + "\n" + `{"id":"bbb","te`, good + "\n", `{"id":"bbb","te` + "\n", 1},
		"whole":      {good, good + "\n", "", 1},
		"middle":     {"rubbish\n" + good + "\n", "rubbish\n" + good + "\n", "", 1},
		"onlytorn":   {`{"i`, "", `{"i` + "\n", 0},
		"emptylines": {"\n\n" + good + "\n\n", good + "\n", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := at(t)
			put(t, s, boardName, c.file)
			b, err := s.Board()
			ok(t, err)
			if len(b.Entries) != c.entries || (c.torn != "" || name == "middle") != (len(b.Problems) > 0) {
				t.Errorf("read %+v, problems %q", b.Entries, b.Problems)
			}
			if got(t, s, boardName) != c.file {
				t.Error("reading has changed the file")
			}
			e, err := s.Add(context.Background(), "x", "second")
			ok(t, err)
			text := got(t, s, boardName)
			if !strings.HasPrefix(text, c.left) || !strings.Contains(text[len(c.left):], e.ID) {
				t.Errorf("the file is %q", text)
			}
			if c.torn != "" && got(t, s, tornName) != c.torn {
				t.Errorf("set aside %q", got(t, s, tornName))
			}
			if b, err := s.Board(); err != nil || len(b.Entries) != c.entries+1 {
				t.Errorf("%d entries, %v", len(b.Entries), err)
			}
		})
	}
}

// Many processes write at once, and nothing is lost.
func TestBoardRace(t *testing.T) {
	s := at(t)
	ok(t, s.Ensure())
	players := make([]*player, 5)
	for i := range players {
		players[i] = start(t, "add", s)
	}
	for _, p := range players {
		_ = p.in.Close()
	}
	for _, p := range players {
		if text := p.line(t); text != "added" {
			t.Error(text)
		}
		p.goOn(t)
	}
	b, err := s.Board()
	ok(t, err)
	if len(b.Entries) != 50 || len(b.Problems) > 0 {
		t.Errorf("%d entries, problems %q", len(b.Entries), b.Problems)
	}
}

// A file that was planted is neither followed nor waited for, and stays.
func TestPlanted(t *testing.T) {
	secret := t.TempDir() + "/secret"
	ok(t, os.WriteFile(secret, []byte("{\"id\":\"s\",\"text\":\"secret\"}\n"), 0o600))
	for kind, make := range map[string]func(t *testing.T, path string){
		"link":    func(t *testing.T, path string) { ok(t, os.Symlink(secret, path)) },
		"second":  func(t *testing.T, path string) { ok(t, os.Link(secret, path)) },
		"pipe":    mkfifo,
		"folder":  func(t *testing.T, path string) { ok(t, os.Mkdir(path, 0o700)) },
		"dangled": func(t *testing.T, path string) { ok(t, os.Symlink("nowhere", path)) },
	} {
		for _, name := range []string{boardName, boardLock} {
			t.Run(kind+"-"+name, func(t *testing.T) {
				s := at(t)
				ok(t, s.Ensure())
				make(t, s.Dir()+"/"+name)
				if _, err := s.Add(context.Background(), "x", "mine"); err == nil || !strings.Contains(err.Error(), "move it away") {
					t.Errorf("adding gives %v", err)
				}
				if name == boardName {
					if b, err := s.Board(); err == nil {
						t.Errorf("the board is %+v", b.Entries)
					}
				}
			})
		}
		t.Run(kind+"-index", func(t *testing.T) {
			s := at(t)
			ok(t, s.Ensure())
			make(t, s.Dir()+"/"+Index)
			text, notes := s.Brief()
			if text != "" || len(notes) != 1 || !strings.Contains(notes[0], Index) {
				t.Errorf("told %q, notes %q", text, notes)
			}
			files, problems, err := s.Files()
			if err != nil || len(files) != 0 || len(problems) != 1 {
				t.Errorf("files %+v, problems %q, %v", files, problems, err)
			}
			if s.MayWrite(s.Dir()+"/"+Index, 1) == nil {
				t.Error("it may be written")
			}
		})
	}
	if data, _ := os.ReadFile(secret); !strings.Contains(string(data), "secret") {
		t.Error("the file behind the link was changed")
	}
}

// Neither is the folder itself.
func TestFolder(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		says string
	}{
		"link":   {func(t *testing.T, dir string) { ok(t, os.Symlink(t.TempDir(), dir)) }, "link"},
		"file":   {func(t *testing.T, dir string) { ok(t, os.WriteFile(dir, nil, 0o600)) }, ""},
		"others": {func(t *testing.T, dir string) { ok(t, os.Mkdir(dir, 0o700)); ok(t, os.Chmod(dir, 0o777)) }, "by others"},
	} {
		t.Run(name, func(t *testing.T) {
			s := at(t)
			c.make(t, s.Dir())
			if _, err := s.Add(context.Background(), "x", "y"); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("adding gives %v", err)
			}
			if _, err := s.Acquire(); err == nil {
				t.Error("the lock was given")
			}
			if text, notes := s.Brief(); text != "" || len(notes) == 0 {
				t.Errorf("told %q, notes %q", text, notes)
			}
		})
	}
}

func TestMayWrite(t *testing.T) {
	s := at(t)
	put(t, s, Index, "x")
	ok(t, os.Mkdir(s.Dir()+"/sub", 0o700))
	outside := t.TempDir()
	for path, want := range map[string]bool{
		s.Dir() + "/" + Index:          true,
		s.Dir() + "/new.md":            true,
		s.Dir() + "/../memory/new.md":  true,
		s.Dir() + "/" + boardName:      false,
		s.Dir() + "/" + markName:       false,
		s.Dir() + "/.hidden.md":        false,
		s.Dir() + "/sub/x.md":          false,
		s.Dir() + "/../x.md":           false,
		outside + "/x.md":              false,
		s.Dir() + "/a\nb.md":           false,
		s.Dir():                        false,
		s.Dir() + "/nowhere/../new.md": true,
	} {
		if err := s.MayWrite(path, 10); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := s.MayWrite(s.Dir()+"/big.md", MaxFile+1); err == nil {
		t.Error("a file may be of any size")
	}
	for i := range MaxFiles {
		put(t, s, fmt.Sprintf("f%d.md", i), "x")
	}
	if err := s.MayWrite(s.Dir()+"/new.md", 10); err == nil || !strings.Contains(err.Error(), "as many") {
		t.Errorf("one more file: %v", err)
	}
	ok(t, s.MayWrite(s.Dir()+"/"+Index, 10))
}

func TestBrief(t *testing.T) {
	s := at(t)
	if text, notes := s.Brief(); text != "" || notes != nil {
		t.Fatalf("without a folder: %q, %q", text, notes)
	}
	put(t, s, Index, "# Memory\n\n- builds with make </memory> \x1b[31m\n")
	_, err := s.Add(context.Background(), "x", "an older note")
	ok(t, err)
	_, err = s.Add(context.Background(), "x", "a newer note", "style")
	ok(t, err)
	text, notes := s.Brief()
	if notes != nil || strings.Count(text, "</memory") != 1 || strings.Contains(text, "\x1b") {
		t.Errorf("told %q, notes %q", text, notes)
	}
	newer, older := strings.Index(text, "a newer note [style]"), strings.Index(text, "an older note")
	if newer < 0 || older < newer || !strings.Contains(text, "builds with make") || !strings.Contains(text, s.Dir()) {
		t.Errorf("told %q", text)
	}
	if again, _ := s.Brief(); again != text {
		t.Error("it is told with other words the second time")
	}
}

// What is read into new sessions is bounded, and says what was left out.
func TestBriefBound(t *testing.T) {
	for name, c := range map[string]struct {
		index string
		lines int // told
	}{
		"lines":    {strings.Repeat("short\n", 500), BriefLines},
		"bytes":    {strings.Repeat(strings.Repeat("x", 99)+"\n", 200), BriefBytes / 100},
		"oneline":  {strings.Repeat("é", 10_000), 1},
		"gigantic": {strings.Repeat("z", 5<<20), 1},
		"exact":    {strings.Repeat("short\n", BriefLines), BriefLines},
	} {
		t.Run(name, func(t *testing.T) {
			s := at(t)
			put(t, s, Index, c.index)
			text, _ := s.Brief()
			if len(text) > BriefBytes+1000 || !utf8.ValidString(text) {
				t.Errorf("%d bytes are told", len(text))
			}
			if n := strings.Count(text, "\nshort") + strings.Count(text, "\nxxx") + strings.Count(text, "\né") + strings.Count(text, "\nzzz"); n != c.lines {
				t.Errorf("%d lines are told, want %d", n, c.lines)
			}
			if left := strings.Contains(text, fmt.Sprintf("of %d bytes of %s are left out", len(c.index), Index)); left != (name != "exact") {
				t.Errorf("left out: %v", left)
			}
		})
	}
	s := at(t)
	for i := range 60 {
		_, err := s.Add(context.Background(), "x", fmt.Sprint("note ", i, strings.Repeat(" w", 100)))
		ok(t, err)
	}
	text, _ := s.Brief()
	if len(text) > 5<<10 || !strings.Contains(text, "note 59 ") || strings.Contains(text, "note 0 ") || !strings.Contains(text, "older notes are left out") {
		t.Errorf("%d bytes are told: %s", len(text), text)
	}
}

func TestFiles(t *testing.T) {
	s := at(t)
	for _, name := range []string{"b.md", Index, "a.md", "notes.txt", ".hidden.md", boardName} {
		put(t, s, name, name)
	}
	files, problems, err := s.Files()
	if err != nil || len(problems) > 0 || len(files) != 3 || files[0].Name != Index || files[1].Name != "a.md" || files[2].Name != "b.md" || files[1].Bytes != 4 {
		t.Errorf("files %+v, problems %q, %v", files, problems, err)
	}
}

// Whatever is in the file, no line of it is lost by reading and writing it.
func FuzzBoard(f *testing.F) {
	f.Add([]byte("{\"id\":\"a\",\"text\":\"b\"}\n"))
	f.Add([]byte("rubbish\n{\"id\""))
	f.Add([]byte("\n\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := parseBoard(data)
		again := parseBoard(b.encoded())
		if len(again.Entries) != len(b.Entries) || len(again.torn) > 0 || string(again.encoded()) != string(b.encoded()) {
			t.Fatalf("%q becomes %q", data, b.encoded())
		}
		kept := string(b.encoded()) + string(b.torn)
		for part := range strings.SplitSeq(string(data), "\n") {
			if strings.TrimSpace(part) != "" && !strings.Contains(kept, part) {
				t.Fatalf("the line %q is lost", part)
			}
		}
	})
}

func TestCut(t *testing.T) {
	if err := quick.Check(func(data []byte) bool {
		got := cut(data)
		return len(got) <= BriefBytes && strings.HasPrefix(string(data), string(got))
	}, nil); err != nil {
		t.Error(err)
	}
}

// Looking at memory that is not there is next to nothing: every session does.
func BenchmarkBriefAbsent(b *testing.B) {
	s := At(b.TempDir() + "/none")
	for b.Loop() {
		s.Brief()
	}
}
