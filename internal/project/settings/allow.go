package settings

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// LocalFile is where [Allow] writes, relative to the folder of a project.
const LocalFile = ".drover/settings.local.json"

// lockPatience is how long somebody else may hold the folder of the settings.
const lockPatience = 5 * time.Second

// Allow adds a rule to permissions.allow in the settings of this checkout, and
// returns what the file holds then. All else in the file stays byte for byte; a
// file that the reader of settings would refuse is left as it is. Readers see the
// old file or the new one.
func Allow(ctx context.Context, folder, rule string) (data []byte, err error) {
	defer annotate.Error(&err, "write the rule to %s", filepath.Join(folder, LocalFile))
	dir, name := saferoot.Dir(folder), filepath.Base(LocalFile)
	path := filepath.Join(folder, filepath.Dir(LocalFile))
	if err := dir.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := dir.Folder(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := lock(ctx, f.File()); err != nil {
		return nil, err
	}
	old, err := content(f, name)
	if err != nil {
		return nil, err
	}
	if data, err = withRule(old, rule); err != nil {
		return nil, fmt.Errorf("%w (correct it, or move it away)", err)
	}
	if len(data) > maxFile {
		return nil, errors.New("it would be larger than 1 MiB (make it smaller)")
	}
	if bytes.Equal(data, old) {
		return data, nil
	}
	return data, f.Replace(name, data)
}

// content is the content of the file, or an empty object for a missing one.
func content(f *saferoot.Folder, name string) ([]byte, error) {
	file, err := f.Open(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return []byte("{}\n"), nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is not a regular file (replace it by one)"))
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("it is larger than 1 MiB (make it smaller)")
	}
	return data, err
}

// lock keeps other writers out until the folder is closed.
func lock(ctx context.Context, folder *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errors.New("another process writes it"))
	defer cancel()
	_, err := home.Await(ctx, func() (*os.File, error) { return folder, home.Flock(folder) })
	return err
}

// withRule is the text of a settings file with one more rule in permissions.allow,
// at the end of the list. A file that has it already stays as it is.
func withRule(old []byte, rule string) ([]byte, error) {
	tree, _, err := decode(old)
	if err != nil {
		return nil, err
	}
	permissions, has := tree["permissions"].(map[string]any)
	if tree["permissions"] != nil && !has {
		return nil, errors.New("permissions is not an object")
	}
	list, hasList := permissions["allow"].([]any)
	if permissions["allow"] != nil && !hasList {
		return nil, errors.New("permissions.allow is not a list")
	}
	if slices.Contains(list, any(rule)) {
		return old, nil
	}
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	if err := e.Encode(rule); err != nil {
		return nil, err
	}
	text := string(bytes.TrimSpace(quoted.Bytes()))
	at, empty, indent := []string{"permissions", "allow"}, len(list) == 0, "      "
	switch {
	case !has:
		at, empty, text = nil, len(tree) == 0, "\"permissions\": {\n    \"allow\": [\n      "+text+"\n    ]\n  }"
		indent = "  "
	case !hasList:
		at, empty, text = at[:1], len(permissions) == 0, "\"allow\": [\n      "+text+"\n    ]"
		indent = "    "
	}
	end, last := place(old, at)
	if end < 0 {
		return nil, errors.New("it cannot be changed where null stands for an object or a list")
	}
	out := slices.Clone(old[:last])
	if !empty {
		out = append(out, ',')
	}
	out = append(out, "\n"+indent+text...)
	rest := old[last:end]
	if !bytes.ContainsRune(rest, '\n') {
		rest = []byte("\n" + indent[2:])
	}
	out = append(append(out, rest...), old[end:]...)
	// The written settings must have the meaning that was wanted, whatever the file looks like.
	now, _, err := decode(out)
	if err != nil {
		return nil, err
	}
	if !has {
		permissions = map[string]any{}
		tree["permissions"] = permissions
	}
	permissions["allow"] = append(slices.Clone(list), rule)
	if !reflect.DeepEqual(now, tree) {
		return nil, errors.New("the rule cannot be added to it")
	}
	return out, nil
}

// place finds the value with the path in a JSON text. It returns the position of its
// closing bracket, and the end of the content before that bracket.
func place(data []byte, path []string) (end, last int) {
	d := json.NewDecoder(bytes.NewReader(jsonc.Plain(data)))
	opened, ok := enter(d)
	if !ok {
		return -1, -1
	}
	for _, name := range path {
		for {
			t, err := d.Token()
			if key, ok := t.(string); err != nil || !ok {
				return -1, -1
			} else if key == name {
				break
			}
			var skip json.RawMessage
			if d.Decode(&skip) != nil {
				return -1, -1
			}
		}
		if opened, ok = enter(d); !ok {
			return -1, -1
		}
	}
	last = int(d.InputOffset())
	for d.More() {
		if opened == '{' {
			if _, err := d.Token(); err != nil { // the name
				return -1, -1
			}
		}
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return -1, -1
		}
		last = int(d.InputOffset())
	}
	if _, err := d.Token(); err != nil {
		return -1, -1
	}
	return int(d.InputOffset()) - 1, last
}

// enter reads the bracket that opens a value.
func enter(d *json.Decoder) (bracket json.Delim, ok bool) {
	t, err := d.Token()
	bracket, ok = t.(json.Delim)
	return bracket, ok && err == nil
}
