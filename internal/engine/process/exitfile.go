package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Departure is how a process ended. Its parent writes it to a file for a later host.
type Departure struct {
	PID      int       `json:"pid"`
	Start    uint64    `json:"start,omitempty"`
	ExitCode int       `json:"exit_code"` // -1 when a signal ended it
	Signal   string    `json:"signal,omitempty"`
	At       time.Time `json:"at"`
}

// WriteDeparture writes the file atomically.
func WriteDeparture(path string, d Departure) error {
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write exit of process %d: %w", d.PID, err)
	}
	if err := replace(path, append(b, '\n')); err != nil {
		return fmt.Errorf("write exit of process %d: %w", d.PID, err)
	}
	return nil
}

func replace(path string, b []byte) error {
	dir, err := saferoot.Near(path).Folder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(path)
	tmp := name + ".partial"
	err = dir.Remove(tmp) // temporary file of a dead writer
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = writeNew(dir, tmp, b)
	}
	_ = failpoint.Hit("exit/written")
	if err == nil {
		err = dir.Rename(tmp, dir, name)
	}
	return err
}

func writeNew(dir *saferoot.Folder, name string, b []byte) error {
	f, err := dir.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// maxNote limits the size of the file.
const maxNote = 4 << 10

// readNote follows no link and does not block on pipes: commands can write to the folder of the
// file.
func readNote(path string) ([]byte, error) {
	f, err := saferoot.Near(path).Open(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxNote))
}

// ReadDeparture reads how a process ended. It returns [os.ErrNotExist] without a file, or
// only one about another process. The zero identity accepts any process.
func ReadDeparture(path string, id Identity) (Departure, error) {
	b, err := readNote(path)
	if err != nil {
		return Departure{}, fmt.Errorf("read exit of process %d: %w", id.PID, err)
	}
	var d Departure
	if err := json.Unmarshal(b, &d); err != nil {
		return Departure{}, fmt.Errorf("read exit of process %d: %w", id.PID, err)
	}
	if id != (Identity{}) && (d.PID != id.PID || d.Start != 0 && d.Start != id.Start) {
		return Departure{}, fmt.Errorf(
			"read exit of process %d: the file tells of process %d: %w",
			id.PID,
			d.PID,
			os.ErrNotExist,
		)
	}
	return d, nil
}
