package worktree

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Bounds of [Edits]. It forgets the oldest entries beyond them.
const (
	maxFiles   = 10_000
	maxEditors = 16 // of one file
)

// Checkout is a folder with the files of a repository. Two of them with the same
// Repo have the same files at the same paths below Top.
type Checkout struct {
	Top  string // absolute, without symbolic links
	Repo string // such as [Tree.Common]
}

// Checkout returns the checkout of the tree.
func (t *Tree) Checkout() Checkout { return Checkout{Top: t.Path, Repo: t.Common} }

// Origin returns the checkout that the tree was made from.
func (t *Tree) Origin() Checkout { return Checkout{Top: t.Repo, Repo: t.Common} }

// Editor is an agent that changes files.
type Editor struct {
	Task task.ID // of the session, for the main agent
	Name string
}

// Word is a notice to one agent about another.
type Word struct {
	To    task.ID
	About Editor
	File  string // as To knows it, absolute
	Apart bool   // About has edited it in another checkout
}

// Text is the word as a reminder.
func (w Word) Text() string {
	who := fmt.Sprintf("Agent %q (%s)", excerpt.Line(cmp.Or(w.About.Name, "?"), 80), w.About.Task)
	file := excerpt.Line(w.File, 300)
	if w.Apart {
		return who + " is editing the same file in another worktree: " + file + ". Keep your change of it small: the two will have to be merged."
	}
	return who + " is editing the same file: " + file + ". Read it again before you change it, and leave alone what is not yours."
}

// Edits knows which agents of a session have edited which files. The zero value
// is ready. Its methods may be called from several goroutines.
type Edits struct {
	mu        sync.Mutex
	checkouts []Checkout         // guarded by mu, like the rest
	files     map[string]*edited // by identity, see key
	order     []string           // keys of files, oldest first
}

type edited struct{ by []editing }

func (f *edited) has(id task.ID) bool {
	return slices.ContainsFunc(f.by, func(one editing) bool { return one.Task == id })
}

type editing struct {
	Editor
	path string
}

// Add makes a checkout known, also for earlier edits. Files outside of all
// checkouts are known by their own paths.
func (e *Edits) Add(c Checkout) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.checkouts, c) {
		return
	}
	e.checkouts = append(e.checkouts, c)
	old, order := e.files, e.order
	e.files, e.order = nil, nil
	for _, key := range order {
		for _, one := range old[key].by {
			if f := e.file(e.key(one.path)); len(f.by) < maxEditors && !f.has(one.Task) {
				f.by = append(f.by, one)
			}
		}
	}
}

// Record records that an agent has edited a file, at an absolute path without
// symbolic links. It returns the notices for this agent about each other editor of
// the file, and for each of them about it. A pair gets one notice about a file.
func (e *Edits) Record(who Editor, path string) []Word {
	e.mu.Lock()
	defer e.mu.Unlock()
	path = filepath.Clean(path)
	f := e.file(e.key(path))
	if f.has(who.Task) {
		return nil
	}
	var words []Word
	for _, old := range f.by {
		apart := old.path != path
		words = append(words, Word{To: who.Task, About: old.Editor, File: path, Apart: apart},
			Word{To: old.Task, About: who, File: old.path, Apart: apart})
	}
	if f.by = append(f.by, editing{who, path}); len(f.by) > maxEditors {
		f.by = f.by[1:]
	}
	return words
}

// Drop forgets an agent that has ended, and the checkout that it had.
func (e *Edits) Drop(id task.ID, top string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	order := e.order[:0]
	for _, key := range e.order {
		f := e.files[key]
		by := f.by[:0]
		for _, one := range f.by {
			if one.Task != id {
				by = append(by, one)
			}
		}
		if f.by = by; len(by) == 0 {
			delete(e.files, key)
		} else {
			order = append(order, key)
		}
	}
	e.order = order
	checkouts := e.checkouts[:0]
	for _, c := range e.checkouts {
		if c.Top != top {
			checkouts = append(checkouts, c)
		}
	}
	e.checkouts = checkouts
}

// key returns the identity of a file: its path in its repository, or its absolute path.
func (e *Edits) key(path string) string {
	best := Checkout{}
	for _, c := range e.checkouts {
		if len(c.Top) > len(best.Top) && strings.HasPrefix(path, strings.TrimSuffix(c.Top, "/")+"/") {
			best = c
		}
	}
	if best.Top == "" {
		return path
	}
	return best.Repo + "\x00" + strings.TrimPrefix(path[len(best.Top):], "/")
}

// file returns the entry of a file, and makes it for a new file.
func (e *Edits) file(key string) *edited {
	if f := e.files[key]; f != nil {
		return f
	}
	if e.files == nil {
		e.files = map[string]*edited{}
	}
	if len(e.order) >= maxFiles {
		delete(e.files, e.order[0])
		e.order = e.order[1:]
	}
	f := &edited{}
	e.files[key] = f
	e.order = append(e.order, key)
	return f
}
