package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/task"
)

// maxRefused limits the file of what workers told in vain, in bytes.
const maxRefused = 1 << 20

// newFleet makes the fleet of the session, which connects to a hub when a task needs it.
func (s *Session) newFleet() *placement.Fleet {
	open := s.cfg.Hub
	if open == nil {
		open = func(context.Context) (*link.Link, error) {
			return nil, errors.New("this session has no hub")
		}
	}
	return placement.New(placement.Config{Session: s.cfg.Info.Session, Open: open, Place: s.cfg.Place,
		Lease: s.cfg.Options.Workers.Lease, Task: s.sup.Get, Refused: s.refused,
		Say: func(about task.ID, text string) { s.tree.Report.Say(about, text) }})
}

// Admit says why nothing can begin in the session now, such as a full disk; nil: everything can.
func (s *Session) Admit() error { return s.Space.Admit() }

// Bounded reports whether everything is bounded that a command does which a session elsewhere starts here for a model.
func (s *Session) Bounded() bool { return s.sandboxes.Whole("") }

// refused keeps reports of a worker whose claim does not count any more.
func (s *Session) refused(e placement.Evidence) {
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	path := filepath.Join(s.cfg.Place.Dir(), "refused.jsonl")
	f, err := s.cfg.Place.Below().Open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return // it is evidence, and nothing depends on it
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < maxRefused {
		_, _ = f.Write(append(line, '\n'))
	}
}
