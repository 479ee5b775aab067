package mcpconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// ErrExists is returned by [Add] for a name that is taken.
var ErrExists = errors.New("there is a server of this name")

// Add puts a server into a file, and makes a missing file. The rest of the file
// stays as it is.
func Add(path, name string, s mcpclient.Server) error {
	return change(path, func(servers *jsonc.Object) error {
		if servers.Find(name) >= 0 {
			return ErrExists
		}
		raw, err := jsonc.Encode(s)
		*servers = append(*servers, jsonc.Member{Key: name, Value: raw})
		return err
	})
}

// Remove takes a server out of a file, and reports whether it was there.
func Remove(path, name string) (bool, error) {
	found := false
	err := change(path, func(servers *jsonc.Object) error {
		i := servers.Find(name)
		if found = i >= 0; found {
			*servers = slices.Delete(*servers, i, i+1)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return found, err
}

// change reads a file, lets f change its servers, and writes it. Concurrent changes
// wait for each other.
func change(path string, f func(*jsonc.Object) error) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	defer unlock()
	data, err := read(File{Path: path}, maxFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(data)) == 0 {
		data, err = []byte("{}"), nil
	}
	if err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	var servers jsonc.Object
	top, err := jsonc.Members(data)
	if err != nil {
		return fmt.Errorf("change %s: it is no JSON object (fix it first): %w", path, err)
	}
	key := "mcpServers"
	at := top.Find(key)
	if other := top.Find("servers"); at < 0 && other >= 0 {
		key, at = "servers", other
	}
	if at < 0 {
		top = append(top, jsonc.Member{Key: key})
		at = len(top) - 1
	} else if servers, err = jsonc.Members(top[at].Value); err != nil {
		return fmt.Errorf("change %s: %s is no JSON object (fix it first): %w", path, key, err)
	}
	if err := f(&servers); err != nil {
		return err
	}
	if top[at].Value, err = servers.Text(); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	return write(path, top)
}

func write(path string, top jsonc.Object) error {
	raw, err := top.Text()
	if err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	b.WriteByte('\n')
	mode := fs.FileMode(0o600) // it may hold secrets
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := home.WriteAtomic(path, b.Bytes()); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	return nil
}

// lock locks a folder against other processes of this program.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks
}
