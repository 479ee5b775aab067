package mcptask

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/drover-dev/drover/task"
)

// version is the version of the checkpoint.
const version = 1

// point is the position of a task, from which a later host can continue.
type point struct {
	V       int       `json:"v"`
	Server  string    `json:"server"`
	Digest  string    `json:"digest,omitempty"`
	Tool    string    `json:"tool"`
	Kind    string    `json:"kind,omitempty"` // [Core] or [Extension]
	Task    string    `json:"task"`           // the server's ID
	PollMS  int64     `json:"poll_ms,omitempty"`
	TTLMS   int64     `json:"ttl_ms,omitempty"`
	Created time.Time `json:"created"`
}

func (p point) encode() []byte {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and a time
	}
	return data
}

// decodePoint reads a checkpoint. An invalid one means lost work.
func decodePoint(data []byte) (point, error) {
	var p point
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%w: its checkpoint cannot be read: %w", task.ErrLost, err)
	}
	if p.Kind != Core && p.Kind != Extension {
		return p, fmt.Errorf("%w: its checkpoint is of a task of kind %q, which is not known here", task.ErrLost, p.Kind)
	}
	if p.V != version || p.Server == "" || p.Task == "" {
		return p, fmt.Errorf("%w: its checkpoint has version %d, and %d is understood here", task.ErrLost, p.V, version)
	}
	return p, nil
}

// expired reports whether the server may have dropped the task by now.
func (p point) expired(now time.Time) bool {
	return p.TTLMS > 0 && now.After(p.Created.Add(time.Duration(p.TTLMS)*time.Millisecond))
}
