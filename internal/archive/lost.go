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
	return fmt.Errorf("its log %s is empty, and %d of its tasks have left output (put the log back, or move %s away)",
		filepath.Base(place.DB()), len(outputs), place.Dir())
}
