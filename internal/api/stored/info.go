// Package stored reads the files of a session that are neither its log nor a transcript: its description, the outputs
// of its tasks and their answers. It reports a log that was lost.
//
// The host of a session uses it, and readers of a session without a host. It writes the description alone.
package stored

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
)

// ReadInfo reads session.json.
func ReadInfo(place home.Session) (info control.Info, err error) {
	data, err := place.ReadInfo()
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	return info, err
}

// WriteInfo writes session.json.
func WriteInfo(place home.Session, info control.Info) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(info); err != nil {
		return fmt.Errorf("write session.json: %w", err)
	}
	if err := place.WriteInfo(buf.Bytes()); err != nil {
		return fmt.Errorf("write session.json: %w", err)
	}
	return nil
}
