package todo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/drover-dev/drover/internal/platform/annotate"
)

// ErrNotFound is returned for a number that no to-do of the list has.
var ErrNotFound = errors.New("no such to-do")

// ErrChanged is returned when a to-do has changed since the caller saw it.
var ErrChanged = errors.New("it was changed meanwhile")

// damaged is a to-do that is there and cannot be read.
type damaged struct {
	id  ID
	err error
}

func (d *damaged) Error() string {
	return fmt.Sprintf("to-do %s cannot be read: %v (fix or delete %s)", d.id, d.err, file(d.id))
}
func (d *damaged) Unwrap() error { return d.err }

// Store is one list. It keeps nothing open and nothing in memory, so it may be
// used by several goroutines, and together with Stores of other processes. Each method
// is one change under the lock of the list; it waits for others until ctx ends,
// at most for 10 s.
type Store struct {
	dir   string
	power bool
	now   func() time.Time
}

// At is the list in a folder, an absolute path, which the first to-do creates.
// Acknowledged changes survive kill -9; with power also a power cut.
func At(dir string, power bool) *Store { return &Store{dir: dir, power: power, now: time.Now} }

// Draft is a to-do that is to be made. Subject is required.
type Draft struct {
	Subject, Description, ActiveForm string
	Owner                            string
	BlockedBy                        []ID
	Metadata                         map[string]json.RawMessage
}

// Patch is a change of a to-do; the zero value of a field leaves it alone.
type Patch struct {
	Subject, Description, ActiveForm, Owner *string
	Status                                  *Status
	Metadata                                map[string]json.RawMessage // put over the present; null removes a key

	BlockedBy    *[]ID // replaces the present ones
	AddBlockedBy []ID
	AddBlocks    []ID // those then wait for this one

	By       string // becomes the owner of a started to-do without one
	Revision int    // if not 0: [ErrChanged] unless the to-do still has it
}

// Change is what an update did. What the to-do waits for may still name some
// that were deleted; a [List] does not.
type Change struct {
	Before, After Item
	Fields        []string // that differ, by their names in JSON, and "blocks"
}

// List reads all to-dos as they are at one moment. What cannot be read is among
// the problems of the list. A folder that is not there is an empty list.
func (s *Store) List(ctx context.Context) (l List, err error) {
	defer annotate.Error(&err, "read to-dos")
	err = s.locked(ctx, false, func(f *folder) error {
		l, err = f.load()
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return List{}, nil
	}
	return l, err
}

// Create adds a to-do with the next number.
func (s *Store) Create(ctx context.Context, d Draft) (it Item, err error) {
	defer annotate.Error(&err, "create to-do")
	err = s.locked(ctx, true, func(f *folder) error {
		it, err = s.create(f, d)
		return err
	})
	return it, err
}

func (s *Store) create(f *folder, d Draft) (Item, error) {
	now := s.now().UTC().Round(0)
	it := Item{
		Subject:     d.Subject,
		Description: d.Description,
		ActiveForm:  d.ActiveForm,
		Owner:       d.Owner,
		Status:      Pending,
		BlockedBy:   sorted(d.BlockedBy),
		Metadata:    map[string]json.RawMessage{},
		Revision:    1,
		CreateTime:  now,
		UpdateTime:  now,
		version:     version,
	}
	if err := it.merge(d.Metadata); err != nil {
		return it, err
	}
	if err := it.check(); err != nil {
		return it, err
	}
	for _, id := range it.BlockedBy {
		if _, err := f.item(id); err != nil {
			return it, err
		}
	}
	last, err := f.mark()
	if err != nil {
		return it, err
	}
	if err := f.full(last); err != nil {
		return it, err
	}
	it.ID = last + 1
	for f.has(it.ID) { // put there by hand
		it.ID++
	}
	if it.ID > maxID {
		return it, errors.New("the list has used up its numbers (begin another)")
	}
	// The number is spent before it is used: a crash between the two skips it.
	if err := f.setMark(it.ID); err != nil {
		return it, err
	}
	return it, f.put(it)
}

// Update changes a to-do, and those that it blocks. A crash may leave a part of
// these changed, each as a whole.
func (s *Store) Update(ctx context.Context, id ID, p Patch) (c Change, err error) {
	defer annotate.Error(&err, "update to-do")
	err = s.locked(ctx, false, func(f *folder) error {
		c, err = s.update(f, id, p)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("to-do %s: %w", id, ErrNotFound)
	}
	return c, err
}

func (s *Store) update(f *folder, id ID, p Patch) (Change, error) {
	before, err := f.item(id)
	if err != nil {
		return Change{}, err
	}
	if p.Revision != 0 && p.Revision != before.Revision {
		return Change{}, fmt.Errorf("to-do %s: %w", id, ErrChanged)
	}
	l := List{Items: []Item{before}}
	if p.edges() {
		if l, err = f.load(); err != nil {
			return Change{}, err
		}
	}
	c, others, err := l.patched(id, p)
	if err != nil {
		return Change{}, err
	}
	now := s.now().UTC().Round(0)
	for _, it := range others {
		if err := f.put(it.touched(now)); err != nil {
			return Change{}, err
		}
	}
	if len(differences(c.Before, c.After)) > 0 {
		c.After = c.After.touched(now)
		err = f.put(c.After)
	}
	return c, err
}

func (it Item) touched(now time.Time) Item {
	it.Revision++
	it.UpdateTime = now
	return it
}

// Delete removes a to-do, also an unreadable one, and returns it. Others no longer
// wait for it: an edge to a deleted number means nothing, and numbers are never
// used again.
func (s *Store) Delete(ctx context.Context, id ID) (it Item, err error) {
	defer annotate.Error(&err, "delete to-do")
	err = s.locked(ctx, false, func(f *folder) error {
		it, err = s.remove(f, id)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("to-do %s: %w", id, ErrNotFound)
	}
	return it, err
}

func (s *Store) remove(f *folder, id ID) (Item, error) {
	it, err := f.item(id)
	var d *damaged
	switch {
	case errors.As(err, &d):
		it = Item{ID: id}
	case err != nil:
		return it, err
	case it.version > version:
		return it, fmt.Errorf("to-do %s was written by a newer Drover (use that one to delete it)", id)
	}
	last, err := f.mark()
	if err != nil {
		return it, err
	}
	if id >= last { // put there by hand, or in a folder without a mark
		if err := f.setMark(id); err != nil {
			return it, err
		}
	}
	return it, f.remove(file(id))
}

func (s *Store) locked(ctx context.Context, create bool, do func(*folder) error) error {
	f, err := open(ctx, s.dir, create, s.power)
	if err != nil {
		return err
	}
	defer f.close()
	return do(f)
}
