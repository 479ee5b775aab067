package mcpconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/home"
)

// ErrExists is returned by [Add] for a name that is taken.
var ErrExists = errors.New("there is a server of this name")

// Add puts a server into a file, which is made if it is not there. What else is
// in the file stays as it is.
func Add(path, name string, s mcpclient.Server) error {
	return change(path, func(servers *members) error {
		if servers.find(name) >= 0 {
			return ErrExists
		}
		raw, err := plainly(s)
		servers.list = append(servers.list, member{name, raw})
		return err
	})
}

// Remove takes a server out of a file, and reports whether it was there.
func Remove(path, name string) (bool, error) {
	found := false
	err := change(path, func(servers *members) error {
		i := servers.find(name)
		if found = i >= 0; found {
			servers.list = append(servers.list[:i], servers.list[i+1:]...)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return found, err
}

// change reads a file, lets f change its servers, and writes it. Changes at the
// same time wait for each other.
func change(path string, f func(*members) error) (err error) {
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
	var top, servers members
	if err := json.Unmarshal(data, &top); err != nil {
		return fmt.Errorf("change %s: it is no JSON object (fix it first): %w", path, err)
	}
	key := "mcpServers"
	at := top.find(key)
	if other := top.find("servers"); at < 0 && other >= 0 {
		key, at = "servers", other
	}
	if at < 0 {
		top.list = append(top.list, member{key, nil})
		at = len(top.list) - 1
	} else if err := json.Unmarshal(top.list[at].value, &servers); err != nil {
		return fmt.Errorf("change %s: %s is no JSON object (fix it first): %w", path, key, err)
	}
	if err := f(&servers); err != nil {
		return err
	}
	if top.list[at].value, err = servers.text(); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	return write(path, top)
}

func write(path string, top members) error {
	raw, err := top.text()
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

// lock holds a folder against others of this program.
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

// members is an object whose order stays.
type members struct{ list []member }

type member struct {
	key   string
	value json.RawMessage
}

func (m members) find(key string) int {
	for i, one := range m.list {
		if one.key == key {
			return i
		}
	}
	return -1
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *members) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(errors.New("no object"), err)
	}
	m.list = nil
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string) // keys are text
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		m.list = append(m.list, member{key, value})
	}
	return nil
}

// plainly is [json.Marshal] that leaves &, < and > as they are.
func plainly(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// text is the object. It is no [json.Marshaler]: json would change the values.
func (m members) text() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, one := range m.list {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := plainly(one.key)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(one.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
