package remoteapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Sidecar is the file beside a session's log with the remote session of a task. It exists from
// the moment that the session is known to the end of the task.
type Sidecar struct {
	Task     string          `json:"taskId"`
	Session  string          `json:"sessionId"`
	Type     Type            `json:"remoteTaskType"`
	Metadata json.RawMessage `json:"remoteTaskMetadata,omitempty"`
}

// WriteSidecar writes it atomically.
func WriteSidecar(path string, s Sidecar) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write sidecar: %w", err)
	}
	return home.WriteBelow(saferoot.Near(path), path, append(data, '\n'))
}

// maxSidecar limits the file.
const maxSidecar = 1 << 20

// ReadSidecar returns an error that wraps [fs.ErrNotExist] if there is none.
func ReadSidecar(path string) (Sidecar, error) {
	var s Sidecar
	data, err := home.ReadBelow(saferoot.Near(path), path, maxSidecar)
	if err != nil {
		return s, fmt.Errorf("read sidecar: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read sidecar %s: %w", path, err)
	}
	return s, CheckSession(s.Session)
}

// RemoveSidecar removes the file, if there is one.
func RemoveSidecar(path string) error {
	if err := saferoot.Near(path).Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove sidecar: %w", err)
	}
	return nil
}
