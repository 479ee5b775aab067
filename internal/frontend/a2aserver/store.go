package a2aserver

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Bounds of what is kept.
const (
	maxTasks   = 1000
	maxSaved   = 32 << 20 // bytes of one file
	maxHistory = 200      // messages of one task; the first one and the newest are kept
	keepEnded  = 7 * 24 * time.Hour
)

// saved is the file of a task.
type saved struct {
	ID      string           `json:"id"`
	Context string           `json:"context_id"`
	Agent   string           `json:"agent"`
	Task    task.ID          `json:"task_id,omitempty"` // empty: not started, or not noted any more
	Run     task.RunID       `json:"run_id,omitempty"`  // a later run is no part of the task: the protocol lets none end twice
	Created time.Time        `json:"create_time"`
	History []a2a.Message    `json:"history"`
	Push    []a2a.PushConfig `json:"push,omitempty"`
	Pushed  bool             `json:"pushed,omitempty"` // the end was sent to all of Push, or given up
	End     *end             `json:"end,omitempty"`
}

// end is how a task ended. It never changes.
type end struct {
	State a2a.State `json:"state"`
	At    time.Time `json:"time"`
	Why   string    `json:"why,omitempty"`
}

// entry is one task.
type entry struct {
	id    string // never changes
	store *store

	starting sync.Mutex // held while the agent is started, or looked for

	mu     sync.Mutex
	saved  saved     // guarded by mu
	mailed time.Time // when the agent that was idle said what a message has replied to; guarded by mu
	asked  string    // the open question that clients were told of; guarded by mu

	delivers bool // news of it is being sent; guarded by mu
}

// state is a copy of what is saved, which nobody changes.
func (one *entry) state() saved {
	one.mu.Lock()
	defer one.mu.Unlock()
	c := one.saved
	c.History, c.Push = slices.Clone(c.History), slices.Clone(c.Push)
	return c
}

// change makes a change durable. If that fails, nothing has changed.
func (one *entry) change(f func(*saved)) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	next := one.saved
	next.History, next.Push = slices.Clone(next.History), slices.Clone(next.Push)
	f(&next)
	if over := len(next.History) - maxHistory; over > 0 {
		next.History = slices.Delete(next.History, 1, 1+over)
	}
	if err := one.store.write(next); err != nil {
		return err
	}
	one.saved = next
	return nil
}

// store is the folder of the tasks, a file for each.
type store struct {
	root home.Root
	dir  string

	mu   sync.Mutex
	byID map[string]*entry // guarded by mu
}

func openStore(root home.Root, dir string) (*store, error) {
	st := &store{root: root, dir: dir, byID: map[string]*entry{}}
	names, err := root.Below().Names(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok || !isID(id) {
			continue
		}
		path := filepath.Join(dir, name)
		data, err := root.ReadFile(path, maxSaved)
		if err != nil {
			return nil, fmt.Errorf("read tasks: %w", err)
		}
		one := &entry{id: id, store: st}
		if err := json.Unmarshal(data, &one.saved); err != nil || one.saved.ID != id {
			return nil, fmt.Errorf("read task %s: it is not the file of a task: %w (delete the file to forget it)", path, err)
		}
		st.byID[id] = one
	}
	return st, nil
}

const idPrefix = "a2a-"

func newID() string { return idPrefix + strings.ToLower(rand.Text()) }

func isID(id string) bool {
	rest, ok := strings.CutPrefix(id, idPrefix)
	return ok && len(rest) >= 20 && len(rest) <= 60 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func (st *store) all() []*entry {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := make([]*entry, 0, len(st.byID))
	for _, one := range st.byID {
		out = append(out, one)
	}
	return out
}

func (st *store) find(id string) *entry {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.byID[id]
}

// create returns the task that a message begins, which is in its file then: the one that the same
// message has begun already, or a new one.
func (st *store) create(agent string, m a2a.Message, push []a2a.PushConfig, now time.Time) (*entry, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, one := range st.byID {
		s := one.state()
		if s.Agent == agent && s.History[0].ID == m.ID && (m.Context == "" || m.Context == s.Context) {
			return one, nil
		}
	}
	st.sweep(now)
	if len(st.byID) >= maxTasks {
		return nil, refusal(a2a.CodeInternal, "%d tasks are kept already (try again when some have ended)", maxTasks)
	}
	s := saved{ID: newID(), Context: m.Context, Agent: agent, Created: now, Push: push}
	if s.Context == "" {
		s.Context = "ctx-" + strings.ToLower(rand.Text())
	}
	m.Task, m.Context = s.ID, s.Context
	for i := range s.Push {
		s.Push[i].Task = s.ID
	}
	s.History = []a2a.Message{m}
	if err := st.write(s); err != nil {
		return nil, err
	}
	one := &entry{id: s.ID, store: st, saved: s}
	st.byID[s.ID] = one
	return one, nil
}

// sweep forgets tasks that ended long ago and, if there are too many, the oldest that have ended. The
// caller holds the store.
func (st *store) sweep(now time.Time) {
	var ended []saved
	for _, one := range st.byID {
		if s := one.state(); s.End != nil && (s.Pushed || len(s.Push) == 0) {
			ended = append(ended, s)
		}
	}
	slices.SortFunc(ended, func(a, b saved) int { return a.End.At.Compare(b.End.At) })
	for _, s := range ended {
		if len(st.byID) < maxTasks && now.Sub(s.End.At) < keepEnded {
			return
		}
		if err := st.root.Below().Remove(filepath.Join(st.dir, s.ID+".json")); err == nil || errors.Is(err, fs.ErrNotExist) {
			delete(st.byID, s.ID)
		}
	}
}

// drop forgets a task that was never started.
func (st *store) drop(one *entry) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.root.Below().Remove(filepath.Join(st.dir, one.id+".json")); err != nil {
		return fmt.Errorf("forget task %s: %w", one.id, err)
	}
	delete(st.byID, one.id)
	return nil
}

func (st *store) write(s saved) error {
	if err := st.root.Below().Mkdir(st.dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the folder of tasks: %w", err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write task: %w", err)
	}
	if len(data) > maxSaved {
		return refusal(a2a.CodeParams, "the messages of the task have %d bytes together, more than the limit of %d",
			len(data), maxSaved)
	}
	return st.root.WriteAtomic(filepath.Join(st.dir, s.ID+".json"), append(data, '\n'))
}
