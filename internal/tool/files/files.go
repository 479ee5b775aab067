package files

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// Bounds of files, and of the part of them that a model sees.
const (
	DefaultLines = 2000
	maxLine      = 2000      // code points of a line that are shown
	maxShown     = 256 << 10 // bytes that one Read returns
	maxFile      = 32 << 20  // bytes of a file that is read at all
)

// New makes the tools Read, Write and Edit of one agent, in this order. Files in readDirs,
// absolute paths of folders such as the folder of output files, can only be read.
func New(a confine.Area, readDirs ...string) []agent.Tool {
	s := &set{read: a, write: a, seen: make(map[string]sum)}
	s.read.Dirs = slices.Concat(a.Dirs, readDirs)
	return []agent.Tool{
		toolkit.New(toolkit.Tool[readInput]{
			Name: "Read", Description: fmt.Sprintf(readPrompt, DefaultLines), Aliases: []string{"FileRead", "view"},
			Parallel: true, ReadOnly: true, Call: s.readFile,
		}),
		toolkit.New(toolkit.Tool[writeInput]{
			Name: "Write", Description: writePrompt, Aliases: []string{"FileWrite", "create"}, Call: s.writeFile,
		}),
		toolkit.New(toolkit.Tool[editInput]{
			Name: "Edit", Description: editPrompt, Aliases: []string{"FileEdit", "edit"}, Call: s.editFile,
		}),
	}
}

//go:embed read.md
var readPrompt string

//go:embed write.md
var writePrompt string

//go:embed edit.md
var editPrompt string

type sum [sha256.Size]byte

// set is what the tools of one agent share.
type set struct {
	read, write confine.Area

	mu   sync.Mutex
	seen map[string]sum // by path: the content as the agent knows it; guarded by mu
}

func (s *set) remember(path string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[path] = sha256.Sum256(content)
}

// current refuses to change a file that the agent has not seen as it is now.
// The content decides, since times and sizes can stay the same.
func (s *set) current(path string, content []byte) error {
	s.mu.Lock()
	known, ok := s.seen[path]
	s.mu.Unlock()
	if !ok {
		return errors.New("you have not read this file; read it first")
	}
	if known != sha256.Sum256(content) {
		return errors.New("the file has changed since you read it; read it again")
	}
	return nil
}

// find is where a file to read is.
func (s *set) find(path string) (confine.Place, error) {
	place, err := s.read.Find("Read", path)
	if err == nil && !s.read.Reads(place.Path()) {
		err = errors.New("reading it is denied by a permission rule")
	}
	return place, err
}

// load reads a whole regular file. Errors are for the model.
func load(p confine.Place) ([]byte, fs.FileInfo, error) {
	root, err := p.Open()
	if err != nil {
		return nil, nil, plain(err)
	}
	defer func() { _ = root.Close() }()
	// Looked at before it is opened, since to open a device may already do
	// something; and again after, since it may have been swapped.
	if info, err := root.Stat(p.Rel); err != nil {
		return nil, nil, plain(err)
	} else if err := regular(info); err != nil {
		return nil, nil, err
	}
	f, err := p.OpenFile(os.O_RDONLY, 0)
	if err != nil {
		return nil, nil, plain(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, plain(err)
	}
	if err := regular(info); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, plain(err)
	}
	if len(data) > maxFile {
		return nil, nil, fmt.Errorf("the file has %d bytes, more than the %d that can be read; "+
			"look at a part of it with Grep or Bash", info.Size(), maxFile)
	}
	return data, info, nil
}

// regular refuses files without content of their own.
func regular(info fs.FileInfo) error {
	switch m := info.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir() && m&fs.ModeSticky != 0:
		return errors.New("as long as commands run in the sandbox, an empty folder is in its place, so that they do not make it; " +
			"try again two seconds after the last has ended")
	case m.IsDir():
		return errors.New("it is a folder; use Glob to list files")
	case m&fs.ModeNamedPipe != 0:
		return errors.New("it is a named pipe, not a file")
	case m&fs.ModeSocket != 0:
		return errors.New("it is a socket, not a file")
	}
	return errors.New("it is a device, not a file")
}

// plain takes the names of system calls out of an error.
func plain(err error) error {
	var p *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("permission denied by the system")
	case errors.As(err, &p):
		return p.Err
	}
	return err
}

// refuse returns the error about a file as a refusal for the model.
func refuse(path string, err error) (agent.Output, error) {
	return agent.Output{}, toolkit.Refuse(confine.About(path, err))
}
