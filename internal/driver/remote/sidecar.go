package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Sidecar is a file in the folder of a session that names the remote task of a task. It exists from the moment that
// the remote task is known to the end of the task.
type Sidecar struct {
	Task     string          `json:"taskId"`
	Session  string          `json:"sessionId"`
	Type     string          `json:"remoteTaskType"`
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

// ReadSidecar reads a sidecar. If the file is missing, the error wraps [fs.ErrNotExist].
func ReadSidecar(path string) (Sidecar, error) {
	var s Sidecar
	data, err := home.ReadBelow(saferoot.Near(path), path, maxSidecar)
	if err != nil {
		return s, fmt.Errorf("read sidecar: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read sidecar %s: %w", path, err)
	}
	return s, a2a.CheckID(s.Session)
}

// RemoveSidecar removes the file, if there is one.
func RemoveSidecar(path string) error {
	if err := saferoot.Near(path).Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove sidecar: %w", err)
	}
	return nil
}

// RemoveSidecars removes the sidecars of tasks that have ended: a host may die between the end and the removal.
func RemoveSidecars(place home.Session, ended func(task.ID) bool) {
	dir := filepath.Dir(place.RemoteFile("r00000000"))
	files, err := place.Below().Names(dir)
	if err != nil {
		return // the folder does not exist
	}
	for _, name := range files {
		if id, ok := strings.CutSuffix(name, ".json"); ok && ended(task.ID(id)) {
			_ = RemoveSidecar(filepath.Join(dir, name)) // the log is authoritative
		}
	}
}
