package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aymanbagabas/go-udiff"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/confine"
)

type writeInput struct {
	FilePath string `json:"file_path" input:"filled"`
	Content  string `json:"content"`
}

// WriteResult is the structured result of Write and Edit.
type WriteResult struct {
	Type     string `json:"type"` // create or update
	FilePath string `json:"filePath"`
	Diff     string `json:"diff,omitempty"` // unified; absent for large files
}

func (s *set) writeFile(_ context.Context, _ agent.Call, in writeInput) (agent.Output, error) {
	place, err := s.write.Find("Write", in.FilePath)
	if err != nil {
		return refuse(in.FilePath, err)
	}
	was, info, err := s.existing(place)
	if err != nil {
		return refuse(in.FilePath, err)
	}
	if err := store(place, []byte(in.Content), info); err != nil {
		return refuse(in.FilePath, err)
	}
	s.remember(place.Path(), []byte(in.Content))
	res := WriteResult{Type: "create", FilePath: place.Path()}
	word := "Created"
	if info != nil {
		res.Type, word = "update", "Wrote"
		res.Diff = diff(place.Path(), string(was), in.Content)
	}
	return agent.Output{Text: fmt.Sprintf("%s %s (%d bytes)", word, place.Path(), len(in.Content)), Structured: res}, nil
}

// existing returns a file that may be overwritten, or no info for a missing one.
func (s *set) existing(p confine.Place) ([]byte, fs.FileInfo, error) {
	if _, err := os.Lstat(p.Path()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	was, info, err := load(p)
	if err != nil {
		return nil, nil, err
	}
	if f, err := p.OpenFile(os.O_WRONLY, 0); errors.Is(err, confine.ErrRefused) {
		return nil, nil, err
	} else if err == nil {
		_ = f.Close()
	}
	return was, info, s.current(p.Path(), was)
}

// store replaces the file at p, which was seen as info, or must not be there if
// that is nil. A reader sees the old content or the new, never a part.
func store(p confine.Place, content []byte, info fs.FileInfo) error {
	mode := fs.FileMode(0o666) // the umask takes from it
	if info != nil {
		mode = info.Mode().Perm()
		if mode&0o200 == 0 {
			return errors.New("the file is read-only")
		}
	}
	root, err := p.Open()
	if err != nil {
		return plain(err)
	}
	defer func() { _ = root.Close() }()
	dir := filepath.Dir(p.Rel)
	if err := root.MkdirAll(dir, 0o777); err != nil {
		return plain(err)
	}
	temp := filepath.Join(dir, ".drover-"+rand.Text())
	if err := fill(root, temp, content, mode, info != nil); err != nil {
		_ = root.Remove(temp)
		return plain(err)
	}
	if err := unchanged(root, p.Rel, info); err != nil {
		_ = root.Remove(temp)
		return err
	}
	if err := root.Rename(temp, p.Rel); err != nil {
		_ = root.Remove(temp)
		return plain(err)
	}
	return nil
}

func fill(root *os.Root, name string, content []byte, mode fs.FileMode, exact bool) (err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if exact {
		return f.Chmod(mode)
	}
	return nil
}

// unchanged is the last look before the file is replaced.
func unchanged(root *os.Root, name string, info fs.FileInfo) error {
	now, err := root.Lstat(name)
	if info == nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.New("the file has just been made by somebody else; read it first")
	}
	if err != nil || !os.SameFile(now, info) || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()) {
		return errors.New("the file has just changed; read it again")
	}
	return nil
}

// maxDiff bounds the time that a diff takes, in bytes of both texts.
const maxDiff = 256 << 10

func diff(path, was, is string) string {
	if len(was)+len(is) > maxDiff {
		return ""
	}
	return udiff.Unified(path, path, was, is)
}
