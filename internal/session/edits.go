package session

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/worktree"
	"github.com/drover-dev/drover/task"
)

// maxWords bounds what is kept for an agent that does not come to read it; the
// oldest goes first.
const maxWords = 20

// edits is who in the session edits which files, and what open agents are still
// to be told of it.
type edits struct {
	known worktree.Edits

	mu  sync.Mutex
	due map[task.ID][]string // of agents whose conversation is open
}

// open lets an agent be told.
func (e *edits) open(id task.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.due == nil {
		e.due = map[task.ID][]string{}
	}
	e.due[id] = nil
}

// close forgets an agent.
func (e *edits) close(id task.ID) {
	e.known.Drop(id, "")
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.due, id)
}

// record takes in that an agent has edited a file.
func (e *edits) record(who worktree.Editor, path string) {
	words := e.known.Record(who, path)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range words {
		texts, open := e.due[w.To]
		if !open {
			continue
		}
		if texts = append(texts, w.Text()); len(texts) > maxWords {
			texts = texts[1:]
		}
		e.due[w.To] = texts
	}
}

// take is what an agent is to be told, once.
func (e *edits) take(id task.ID) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	texts, open := e.due[id]
	if open {
		e.due[id] = nil
	}
	return texts
}

// edited is told of a call that has ended.
func (k *kit) edited(e agent.Event) {
	if e.Kind != agent.ToolDoneEvent || e.Output.IsError || !writes(e.Call.Name) {
		return
	}
	var in struct {
		Path string `json:"file_path"`
	}
	if json.Unmarshal(e.Call.Input, &in) != nil || in.Path == "" {
		return
	}
	if path, ok := k.me.within(in.Path); ok {
		k.me.s.edits.record(worktree.Editor{Task: k.me.id, Name: (&runtime{self: k.me}).name()}, path)
	}
}

// writes reports tools that change the file that they name, in all dialects.
func writes(tool string) bool {
	switch strings.ToLower(tool) {
	case "write", "filewrite", "create", "edit", "fileedit":
		return true
	}
	return false
}
