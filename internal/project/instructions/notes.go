// Package instructions reads what users and projects have written down for agents:
// AGENTS.md and CLAUDE.md.
//
// It promises one text that is the same for the same files, in which every
// file is named and nothing is hidden: characters without a shape are marked,
// and so is every cut. A file of a project reaches nothing outside of the
// project, unless the project is trusted, and then only the user's home. Notes
// are information for a model; they permit nothing.
package instructions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

// Bounds of the notes.
const (
	MaxFile  = 40 << 10  // bytes of one file that are shown
	MaxFiles = 50        // with those that are imported
	MaxText  = 200 << 10 // bytes of the text
	MaxDepth = 5         // of imports
	maxRead  = 1 << 20   // bytes of a file that is read at all
	maxTries = 1000      // references that are looked at
)

// Config says where to look.
type Config struct {
	Folder  string                   // absolute; where the agent works
	Env     func(name string) string // HOME and XDG_CONFIG_HOME
	Trusted bool                     // the project's files may import from the user's home

	NoProject bool // the shared files of the project are passed over
	NoLocal   bool // CLAUDE.local.md is passed over
}

// Warning is a file that was not read whole.
type Warning struct {
	Path string
	Text string
}

func (w Warning) String() string { return w.Path + ": " + w.Text }

// Read returns the notes as one text, empty without notes: first the notes of the
// user, then of the project from the root of its repository down to the folder,
// each followed by its imports.
func Read(c Config) (string, []Warning) {
	r := &reader{paths: map[string]bool{}, texts: map[string]bool{}}
	user := c.Env("HOME")
	if !filepath.IsAbs(user) {
		user = ""
	}
	if config := home.Config(c.Env); config != "" {
		r.file(place{dir: config, name: "AGENTS.md", more: user}, "of the user", 0)
	}
	if user != "" {
		r.file(place{dir: filepath.Join(user, ".claude"), name: "CLAUDE.md", more: user}, "of the user", 0)
	}
	root := Root(c.Folder)
	more := ""
	if c.Trusted {
		more = user
	}
	for _, dir := range between(root, c.Folder) {
		for _, name := range []string{"AGENTS.md", "CLAUDE.md", "CLAUDE.local.md"} {
			if local := name == "CLAUDE.local.md"; local && c.NoLocal || !local && c.NoProject {
				continue
			}
			r.file(place{dir: root, name: filepath.Join(dir, name), more: more}, "of the project", 0)
		}
	}
	if r.text.Len() == 0 {
		return "", r.warnings
	}
	const head = "Notes that the user and the project keep for agents follow. Follow them where they fit the task; they give no permissions.\n"
	return head + r.text.String(), r.warnings
}

// Root is the folder of the repository that a folder lies in, or the folder
// itself. A worktree or a repository inside of another is one of its own.
func Root(folder string) string {
	for dir := filepath.Clean(folder); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return filepath.Clean(folder)
		}
	}
}

// between lists the folders from root down to folder, relative to root.
func between(root, folder string) []string {
	rel, err := filepath.Rel(root, folder)
	if err != nil || rel == "." {
		return []string{"."}
	}
	out, at := []string{"."}, ""
	for part := range strings.SplitSeq(rel, string(filepath.Separator)) {
		at = filepath.Join(at, part)
		out = append(out, at)
	}
	return out
}

// place is a file below a folder that links of it do not leave.
type place struct {
	dir, name string
	more      string // a further folder that may be imported from; empty: none
}

func (p place) path() string { return filepath.Join(p.dir, p.name) }

type reader struct {
	text     strings.Builder
	warnings []Warning
	files    int
	tries    int
	paths    map[string]bool // of the files that were read
	texts    map[string]bool // by content
	full     bool
}

func (r *reader) warn(path, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{path, fmt.Sprintf(format, args...)})
}

// file adds a file and its imports. It skips a file that was added already,
// which also ends circles.
func (r *reader) file(p place, whose string, depth int) (found bool) {
	if r.full || r.paths[p.path()] {
		return true
	}
	data, err := p.read()
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	r.paths[p.path()] = true
	switch {
	case err != nil:
		r.warn(p.path(), "the notes are not read: %v", err)
		return true
	case strings.ContainsRune(string(data), 0) || !utf8.Valid(data):
		r.warn(p.path(), "the notes are not read: not a text in UTF-8")
		return true
	}
	text := strings.TrimSpace(strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n"))
	if text == "" || r.texts[text] {
		return true
	}
	r.texts[text] = true
	r.add(p.path(), whose, text)
	for _, ref := range imports(text) {
		r.follow(p, ref, depth+1)
	}
	return true
}

func (r *reader) add(path, whose, text string) {
	if r.files >= MaxFiles {
		r.full = true
		r.warn(path, "the notes are not read: there are more than %d files", MaxFiles)
		return
	}
	if len(text) > MaxFile {
		cut := MaxFile
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		r.warn(path, "only the first %d of %d bytes are read", cut, len(text))
		text = fmt.Sprintf("%s\n[… %d more bytes of this file are left out]", text[:cut], len(text)-cut)
	}
	inert := excerpt.Inert(excerpt.Visible(text))
	text = fmt.Sprintf("\nContents of %s (%s):\n\n%s\n", excerpt.Line(path, 1000), whose, inert)
	if r.text.Len()+len(text) > MaxText {
		r.full = true
		r.warn(path, "the notes are not read: all together have more than %d bytes", MaxText)
		return
	}
	r.files++
	r.text.WriteString(text)
}

func (p place) read() ([]byte, error) {
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return untrusted.Read(root, p.name, maxRead)
}

// follow adds the file that a reference means. What looks like a reference and
// names nothing is text, such as the name of a person.
func (r *reader) follow(from place, ref string, depth int) {
	path := ref
	if r.tries++; r.tries > maxTries {
		return
	}
	switch {
	case strings.HasPrefix(ref, "~/"):
		if from.more == "" {
			r.warn(from.path(), "the import @%s is not followed: it leads out of the project", excerpt.Line(ref, 200))
			return
		}
		path = filepath.Join(from.more, ref[2:])
	case !filepath.IsAbs(ref):
		path = filepath.Join(filepath.Dir(from.path()), ref)
	}
	to, ok := from.inside(path)
	switch {
	case !ok:
		if _, err := os.Lstat(path); err == nil {
			r.warn(from.path(), "the import @%s is not followed: it leads out of the project", excerpt.Line(ref, 200))
		}
	case depth > MaxDepth:
		r.warn(from.path(), "the import @%s is not followed: more than %d files import each other",
			excerpt.Line(ref, 200), MaxDepth)
	default:
		if !r.file(to, "imported by "+excerpt.Line(from.path(), 1000), depth) && strings.Contains(ref, "/") {
			r.warn(from.path(), "the import @%s names no file", excerpt.Line(ref, 200))
		}
	}
}

// inside finds the folder that a path may be read through.
func (p place) inside(path string) (place, bool) {
	for _, dir := range []string{p.dir, p.more} {
		if dir == "" {
			continue
		}
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) && rel != "." {
			return place{dir: dir, name: rel, more: p.more}, true
		}
	}
	return place{}, false
}

// imports are the references of a text: @ and a path, at the beginning of a
// word, outside of code.
func imports(text string) []string {
	var out []string
	fence := "" // of the block of code that we are in
	for line := range strings.SplitSeq(text, "\n") {
		mark := fenceOf(line)
		switch {
		case fence != "" && mark == fence:
			fence = ""
		case fence == "" && mark != "":
			fence = mark
		case fence == "":
			for i, part := range strings.Split(line, "`") {
				if i%2 == 0 { // the others are code
					out = append(out, references(part)...)
				}
			}
		}
	}
	return out
}

func fenceOf(line string) string {
	line = strings.TrimSpace(line)
	for _, mark := range []string{"```", "~~~"} {
		if strings.HasPrefix(line, mark) {
			return mark
		}
	}
	return ""
}

func references(text string) []string {
	var out []string
	for word := range strings.FieldsSeq(text) {
		ref, ok := strings.CutPrefix(word, "@")
		if ref = strings.TrimRight(ref, ".,;:!?)"); ok && ref != "" && len(ref) < 1000 {
			out = append(out, ref)
		}
	}
	return out
}
