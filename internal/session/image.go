package session

import (
	"encoding/json"

	"github.com/drover-dev/drover/internal/platform/picture"
)

// image is an image of a prompt, in the form of the Messages API.
func (s *Session) image(sum string) (json.RawMessage, error) {
	data, err := s.cfg.Place.Image(sum, picture.MaxBytes)
	if err != nil {
		return nil, err
	}
	kind, err := picture.Check(data)
	if err != nil {
		return nil, err
	}
	return picture.Source(data, kind), nil
}
