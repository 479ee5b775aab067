package stored

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Lost returns an error for a log that has lost its events: it has none, and tasks have left
// output. It must not be taken for a new session.
func Lost(place home.Session, log *journal.Journal) error {
	if log.Last() > 0 {
		return nil
	}
	return lost(place, "is empty")
}

// Gone is [Lost] for a log without any content.
func Gone(place home.Session) error {
	info, err := place.Below().Lstat(place.DB())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lost(place, "is gone")
	case err == nil && info.Size() == 0:
		return lost(place, "is empty")
	}
	return nil
}

func lost(place home.Session, how string) error {
	names, err := place.Below().Names(place.Tasks())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for outputs of tasks: %w", err)
	}
	outputs := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".output") {
			outputs++
		}
	}
	if outputs == 0 {
		return nil
	}
	return fmt.Errorf("%w: the log %s, and %d of its tasks have left output", journal.ErrDamaged, how, outputs)
}

// Void reports that nothing was ever written to a log, since its creator died before that.
func Void(place home.Session) bool {
	log, err := journal.Open(place.DB(), journal.Options{ReadOnly: true})
	if err != nil {
		return !journal.Damaged(cmp.Or(Gone(place), err))
	}
	defer func() { _ = log.Close() }() // it was opened for reading only
	return log.Last() == 0 && Lost(place, log) == nil
}

// Fix adds to the error of a damaged log how to fix it.
func Explain(place home.Session, err error) error {
	if !journal.Damaged(err) {
		return err
	}
	return fmt.Errorf("%w (put %s back, or run `drover sessions repair %s`)", err, filepath.Base(place.DB()), place.ID())
}
