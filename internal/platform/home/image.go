package home

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

const images = "images"

// image is the file of an image of a prompt, which is named by the sum of its content.
func (s Session) image(sum string) string { return filepath.Join(s.dir, images, element(sum)) }

// KeepImage keeps an image of a prompt until the session is removed.
func (s Session) KeepImage(sum string, data []byte) error {
	mine, err := s.Below().Folder(s.dir)
	if err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	defer mine.Close()
	dir, err := ensure(mine, images)
	if err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	defer dir.Close()
	if _, err := s.Below().Lstat(s.image(sum)); !errors.Is(err, fs.ErrNotExist) {
		return err // it is there
	}
	if err := s.project.root.WriteAtomic(s.image(sum), data); err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	return nil
}

// Image reads an image of a prompt, of which most bytes are read at most.
func (s Session) Image(sum string, most int64) ([]byte, error) {
	data, err := s.project.root.ReadFile(s.image(sum), most)
	if err != nil {
		return nil, fmt.Errorf("read an image of a prompt: %w", err)
	}
	return data, nil
}
