package archive

import (
	"fmt"
	"path/filepath"

	"github.com/drover-dev/drover/internal/home"
	"github.com/drover-dev/drover/internal/journal"
)

// Lost tells of a log that has lost its events: there is none of them, and tasks have
// left output. It must not be taken for that of a new session.
func Lost(place home.Session, log *journal.Journal) error {
	if log.Last() > 0 {
		return nil
	}
	outputs, err := filepath.Glob(filepath.Join(place.Tasks(), "*.output"))
	if err != nil || len(outputs) == 0 {
		return err
	}
	return fmt.Errorf("%w: the log is empty, and %d of its tasks have left output", journal.ErrDamaged, len(outputs))
}

// Mend adds to an error of a damaged log what can be done about it.
func Mend(place home.Session, err error) error {
	if !journal.Damaged(err) {
		return err
	}
	return fmt.Errorf("%w (put %s back, or move %s away)", err, filepath.Base(place.DB()), place.Dir())
}
