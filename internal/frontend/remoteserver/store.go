package remoteserver

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Bounds of what is kept.
const (
	maxKey      = 200
	maxSessions = 10_000
)

// saved is the file of a session.
type saved struct {
	Key      string            `json:"key"`
	Request  remoteapi.Request `json:"request"`
	Task     task.ID           `json:"task_id,omitempty"` // empty: not started, or not noted any more
	Archived bool              `json:"archived,omitempty"`
}

// entry is one session.
type entry struct {
	ID string // never changes

	mu    sync.Mutex
	saved saved // guarded by mu
}

// store is the folder of the sessions, a file for each.
type store struct {
	dir string

	mu    sync.Mutex
	byID  map[string]*entry // guarded by mu
	byKey map[string]*entry // guarded by mu
}

// maxSaved bounds the file of one session.
const maxSaved = 16 << 20

func openStore(dir string) (*store, error) {
	st := &store{dir: dir, byID: map[string]*entry{}, byKey: map[string]*entry{}}
	files, err := saferoot.Dir(filepath.Dir(dir)).Names(dir)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	for _, name := range files {
		id, ok := strings.CutSuffix(name, ".json")
		if !ok || remoteapi.CheckSession(id) != nil {
			continue
		}
		path := filepath.Join(dir, name)
		data, err := home.ReadBelow(saferoot.Near(path), path, maxSaved)
		if err != nil {
			return nil, fmt.Errorf("read sessions: %w", err)
		}
		one := &entry{ID: id}
		if err := json.Unmarshal(data, &one.saved); err != nil {
			return nil, fmt.Errorf("read session %s: %w (delete the file to forget it)", path, err)
		}
		st.byID[id], st.byKey[one.saved.Key] = one, one
	}
	return st, nil
}

func (st *store) all() []*entry {
	st.mu.Lock()
	defer st.mu.Unlock()
	var out []*entry
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

// create returns the session of a key, which is in its file then.
func (st *store) create(q remoteapi.Request) (*entry, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if one := st.byKey[q.Key]; one != nil {
		return one, nil
	}
	if len(st.byID) >= maxSessions {
		return nil, &httpError{503, fmt.Sprintf("there are %d sessions already", maxSessions)}
	}
	one := &entry{ID: "rs-" + strings.ToLower(rand.Text()), saved: saved{Key: q.Key, Request: q}}
	if err := st.save(one); err != nil {
		return nil, err
	}
	st.byID[one.ID], st.byKey[q.Key] = one, one
	return one, nil
}

// save writes the file of a session that the caller holds, or that nobody else
// knows yet.
func (st *store) save(one *entry) error {
	data, err := json.MarshalIndent(one.saved, "", "  ")
	if err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	path := filepath.Join(st.dir, one.ID+".json")
	return home.WriteBelow(saferoot.Near(path), path, append(data, '\n'))
}

// drop forgets a session that the caller holds.
func (st *store) drop(one *entry) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.byID, one.ID)
	delete(st.byKey, one.saved.Key)
	path := filepath.Join(st.dir, one.ID+".json")
	if err := saferoot.Near(path).Remove(path); err != nil {
		return fmt.Errorf("forget session: %w", err)
	}
	return nil
}

func (st *store) archive(one *entry) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.saved.Archived = true
	return st.save(one)
}
