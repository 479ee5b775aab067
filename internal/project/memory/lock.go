package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/home"
)

const (
	markName = "consolidation"      // modified at the time of the last consolidation
	markLock = "consolidation.lock" // locked while one is under way; never read or written

	// How long a change of the board waits for others before it gives up.
	patience = 10 * time.Second

	maxMark     = 4096
	markVersion = 1
)

// ErrHeld says that somebody consolidates already.
var ErrHeld = errors.New("memory is being consolidated")

// HeldError is [ErrHeld] with who that is, as far as it is known.
type HeldError struct{ PID int }

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return ErrHeld.Error() + " by another process"
	}
	return fmt.Sprintf("%v by process %d", ErrHeld, e.PID)
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// mark is the content of the file of consolidations. It is written together with
// the time of the file, so a crash leaves both as they were or both new.
type mark struct {
	Version int               `json:"v"`
	Holder  *process.Identity `json:"holder,omitempty"`
	Prior   time.Time         `json:"prior,omitzero"` // time of the file before the holder came; zero: there was none
}

// State is the state of consolidation.
type State struct {
	Last time.Time // end of the last consolidation; zero: there was none
	PID  int       // of the process that consolidates now; 0: none
}

// State looks without taking the lock. It infers the holder from the mark and from
// whether the process lives; only [Store.Acquire] can be sure.
func (s *Store) State() (State, error) {
	root, err := s.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("look at consolidation: %w", err)
	}
	defer root.Close()
	m, changed, err := readMark(root)
	if err != nil {
		return State{}, fmt.Errorf("look at consolidation: %w", err)
	}
	st := State{Last: m.last(changed)}
	if m.Holder != nil && process.Alive(*m.Holder) {
		st.PID = m.Holder.PID
	}
	return st, nil
}

// last returns the time of the last consolidation; one under way does not count yet.
func (m mark) last(changed time.Time) time.Time {
	if m.Holder != nil {
		return m.Prior
	}
	return changed
}

// readMark reads the file. A missing file is the zero mark, never changed. It ignores
// invalid content, since only the time counts.
func readMark(root *home.Folder) (mark, time.Time, error) {
	data, info, err := root.Read(markName, maxMark)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, time.Time{}, nil
	}
	if err != nil {
		return mark{}, time.Time{}, err
	}
	var m mark
	if json.Unmarshal(data, &m) != nil {
		return mark{}, info.ModTime(), nil
	}
	if m.Version > markVersion {
		return m, time.Time{}, fmt.Errorf("%s was written by a newer Drover (use that one)", markName)
	}
	return m, info.ModTime(), nil
}

func writeMark(root *home.Folder, m mark, changed time.Time) error {
	m.Version = markVersion
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return root.Write(markName, append(data, '\n'), true, changed)
}

// restore puts the file back as it was before a consolidation began.
func restore(root *home.Folder, prior time.Time) error {
	if !prior.IsZero() {
		return writeMark(root, mark{}, prior)
	}
	if err := root.Remove(markName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Lock is the right to consolidate. One goroutine at a time may use it, and ends
// it by Done or Rollback; what comes after that does nothing.
type Lock struct {
	root   *home.Folder
	unlock func()
	prior  time.Time
	ended  bool
}

// Acquire takes the lock, or returns a [*HeldError]. The lock is one of the
// kernel's on a file next to the mark, so it ends with its holder, and two processes
// never have it at once. Acquire undoes the mark of a dead holder.
func (s *Store) Acquire() (_ *Lock, err error) {
	root, err := s.open(true)
	if err != nil {
		return nil, fmt.Errorf("lock memory: %w", err)
	}
	l := &Lock{root: root}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.unlock, err = root.TryLock(markLock); err != nil {
		if errors.Is(err, home.ErrLocked) {
			return nil, heldBy(root)
		}
		return nil, fmt.Errorf("lock memory: %w", err)
	}
	old, changed, err := readMark(root)
	if err != nil {
		return nil, fmt.Errorf("lock memory: %w", err)
	}
	me, err := process.Identify(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("lock memory: %w", err)
	}
	l.prior = old.last(changed)
	if err := writeMark(root, mark{Holder: &me, Prior: l.prior}, time.Time{}); err != nil {
		return nil, fmt.Errorf("lock memory: %w", err)
	}
	return l, nil
}

// heldBy names the holder, if it has told already.
func heldBy(root *home.Folder) error {
	m, _, err := readMark(root)
	if err != nil || m.Holder == nil {
		return &HeldError{}
	}
	return &HeldError{PID: m.Holder.PID}
}

// Prior is the time of the last consolidation before this one; zero: there was
// none.
func (l *Lock) Prior() time.Time { return l.prior }

// Done ends a consolidation that was one: it is the last from now on.
func (l *Lock) Done() error {
	return l.end(func() error { return writeMark(l.root, mark{}, time.Now()) })
}

// Rollback ends a failed consolidation: the next may begin as if this one never began.
func (l *Lock) Rollback() error {
	return l.end(func() error { return restore(l.root, l.prior) })
}

func (l *Lock) end(write func() error) error {
	if l.ended {
		return nil
	}
	defer l.close()
	if err := write(); err != nil {
		return fmt.Errorf("unlock memory: %w", err)
	}
	return nil
}

func (l *Lock) close() {
	l.ended = true
	if l.unlock != nil {
		l.unlock()
	}
	l.root.Close()
}

// Recover undoes the mark of a dead holder. It is cheap without one, and leaves a
// living holder alone.
func (s *Store) Recover() error {
	root, err := s.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look after memory: %w", err)
	}
	defer root.Close()
	if m, _, err := readMark(root); err != nil || m.Holder == nil {
		return err
	}
	unlock, err := root.TryLock(markLock)
	if errors.Is(err, home.ErrLocked) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look after memory: %w", err)
	}
	defer unlock()
	m, _, err := readMark(root) // it may have ended in order meanwhile
	if err == nil && m.Holder != nil {
		err = restore(root, m.Prior)
	}
	if err != nil {
		return fmt.Errorf("look after memory: %w", err)
	}
	return nil
}
