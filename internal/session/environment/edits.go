package environment

import (
	"strings"
	"sync"

	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/task"
)

// maxEdits limits the texts for an agent that does not read them; the oldest is dropped first.
const maxEdits = 20

// Edits records which agents of the session edit which files, and what open agents have not yet
// read of it. The zero value is ready.
type Edits struct {
	files worktree.Edits

	mu  sync.Mutex
	due map[task.ID][]string // guarded by mu: of agents whose conversation is open
}

// AddCheckout makes edits in a checkout count as edits of the original files.
func (e *Edits) AddCheckout(t *worktree.Tree) {
	e.files.Add(t.Origin())
	e.files.Add(t.Checkout())
}

// DropCheckout removes the edits of a checkout.
func (e *Edits) DropCheckout(t *worktree.Tree) { e.files.Drop(t.Task, t.Path) }

// Open lets an agent read of edits, until Close.
func (e *Edits) Open(id task.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.due == nil {
		e.due = map[task.ID][]string{}
	}
	e.due[id] = nil
}

// Close removes an agent.
func (e *Edits) Close(id task.ID) {
	e.files.Drop(id, "")
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.due, id)
}

// Record records that an agent has edited a file.
func (e *Edits) Record(who worktree.Editor, path string) {
	words := e.files.Record(who, path)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range words {
		texts, open := e.due[w.To]
		if !open {
			continue
		}
		if texts = append(texts, w.Text()); len(texts) > maxEdits {
			texts = texts[1:]
		}
		e.due[w.To] = texts
	}
}

// Take returns what an agent has to read, once.
func (e *Edits) Take(id task.ID) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	texts, open := e.due[id]
	if open {
		e.due[id] = nil
	}
	return texts
}

// Writes reports whether a tool changes the file that it names, in all dialects.
func Writes(tool string) bool {
	switch strings.ToLower(tool) {
	case "write", "filewrite", "create", "edit", "fileedit":
		return true
	}
	return false
}
