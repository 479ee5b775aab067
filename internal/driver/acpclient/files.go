package acpclient

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	acp "github.com/coder/acp-go-sdk"
)

var errUnknownSession = errors.New("the session is unknown")

// maxFile is how many bytes of a file fit into a message.
const maxFile = 4 << 20

// read answers fs/read_text_file.
func (c *conn) read(_ context.Context, r acp.ReadTextFileRequest) (any, error) {
	if err := c.about(r.SessionId, r.Path); err != nil {
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
	text = part(text, r.Line, r.Limit)
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, more than %d: ask for a part of it by line and limit", r.Path, len(text), maxFile)
	}
	return map[string]string{"content": text}, nil
}

// part returns lines of a text. The first line has the number 1.
func part(text string, from, limit *int) string {
	if from == nil && limit == nil {
		return text
	}
	all := strings.SplitAfter(text, "\n")
	if from != nil {
		all = all[min(max(*from, 1)-1, len(all)):]
	}
	if limit != nil {
		all = all[:min(max(*limit, 0), len(all))]
	}
	return strings.Join(all, "")
}

// write answers fs/write_text_file.
func (c *conn) write(_ context.Context, r acp.WriteTextFileRequest) (any, error) {
	if err := c.about(r.SessionId, r.Path); err != nil {
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
	return nil, nil
}

// about refuses a request for another session, or for a path that is not absolute.
func (c *conn) about(session acp.SessionId, path string) error {
	switch {
	case string(session) != c.session:
		return errUnknownSession
	case !filepath.IsAbs(path):
		return fmt.Errorf("the path %.200q is not absolute", path)
	}
	return nil
}
