package acpclient

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// maxFile is how much of a file is given or taken at once, so that a message holds it.
const maxFile = 4 << 20

// read answers fs/read_text_file.
func (c *conn) read(r readRequest) (any, error) {
	if err := c.about(r.SessionID, r.Path); err != nil {
		return nil, err
	}
	o := &tool{}
	if err := c.denied(one(o.as("Read", map[string]any{"file_path": r.Path}))); err != nil {
		return nil, err
	}
	text, err := c.a.o.Files.Read(c.life, r.Path)
	if err != nil {
		return nil, err
	}
	if r.Line > 1 || r.Limit != nil {
		text = part(text, r.Line, r.Limit)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, more than %d: ask for a part of it by line and limit", r.Path, len(text), maxFile)
	}
	return map[string]string{"content": text}, nil
}

// part is some lines of a text; the first one is 1.
func part(text string, from int, limit *int) string {
	all := strings.SplitAfter(text, "\n")
	from = min(max(from, 1)-1, len(all))
	all = all[from:]
	if limit != nil {
		all = all[:min(max(*limit, 0), len(all))]
	}
	return strings.Join(all, "")
}

// write answers fs/write_text_file.
func (c *conn) write(r writeRequest) (any, error) {
	if err := c.about(r.SessionID, r.Path); err != nil {
		return nil, err
	}
	o := &tool{}
	if err := c.denied(one(o.as("Write", map[string]any{"file_path": r.Path, "content": r.Content}))); err != nil {
		return nil, err
	}
	if err := c.a.o.Files.Write(c.life, r.Path, r.Content); err != nil {
		return nil, err
	}
	c.a.say("wrote %d bytes to %s", len(r.Content), line(r.Path, 300))
	return struct{}{}, nil
}

// about refuses a request of another session, or about a path that is not absolute.
func (c *conn) about(session, path string) error {
	switch {
	case session != c.session:
		return errors.New("there is no such session")
	case !filepath.IsAbs(path):
		return fmt.Errorf("the path %.200q is not absolute", path)
	}
	return nil
}
