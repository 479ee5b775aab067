package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const maxFile = 1 << 20

func (l *loader) file(path string, trusted bool) {
	if path == "" {
		return
	}
	data, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		l.errs = append(l.errs, fmt.Errorf("settings file %s %w", path, err))
	default:
		l.layer(path, data, trusted)
	}
}

func (l *loader) flagFile(path string) {
	if _, err := os.Stat(path); err != nil {
		l.errs = append(l.errs, fmt.Errorf("settings file %s cannot be read: %w", path, err))
		return
	}
	l.file(path, true)
}

// read reads a whole file of a bounded size, and waits for no pipe.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file (replace it by one)")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if len(data) > maxFile {
		return nil, errors.New("is larger than 1 MiB (make it smaller)")
	}
	return data, nil
}

// layer lays the settings of one source over those before it. Those of an
// untrusted one are cut down to what forbids.
func (l *loader) layer(source string, data []byte, trusted bool) {
	fail := func(err error) {
		l.errs = append(l.errs, fmt.Errorf("settings in %s: %w (correct it, or move it away)", source, err))
	}
	tree, err := decode(data)
	if err != nil {
		fail(err)
		return
	}
	l.prune(source, "", tree, reflect.TypeFor[Settings]())
	if !trusted {
		tree = l.forbidding(source, tree)
	}
	clean, err := json.Marshal(tree)
	if err != nil {
		fail(err)
		return
	}
	next := l.set
	next.Permissions.Allow, next.Permissions.Ask, next.Permissions.Deny = nil, nil, nil
	if err := json.Unmarshal(clean, &next); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			err = fmt.Errorf("%s is a %s, and should be a %s", wrong.Field, wrong.Value, wrong.Type)
		}
		fail(err)
		return
	}
	next.Permissions.Allow = union(l.set.Permissions.Allow, next.Permissions.Allow)
	next.Permissions.Ask = union(l.set.Permissions.Ask, next.Permissions.Ask)
	next.Permissions.Deny = union(l.set.Permissions.Deny, next.Permissions.Deny)
	l.set = next
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// decode reads one JSON object, strictly: two values for one key would let a
// reader see one and Drover use the other.
func decode(data []byte) (map[string]any, error) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("it is empty; no settings at all are written {}")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")), bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, errors.New("it begins with a byte order mark; write it as plain UTF-8")
	case !utf8.Valid(data):
		return nil, errors.New("it is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := value(d, "", 0)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("it ends in the middle")
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands after the end of the object")
	}
	tree, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	return tree, nil
}

func value(d *json.Decoder, path string, depth int) (any, error) {
	if depth > 100 {
		return nil, errors.New("it is nested more than 100 deep")
	}
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		out := map[string]any{}
		for d.More() {
			tok, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ := tok.(string)
			at := strings.TrimPrefix(path+"."+key, ".")
			if _, twice := out[key]; twice {
				return nil, fmt.Errorf("%.80q is set twice", at)
			}
			if out[key], err = value(d, at, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for d.More() {
			v, err := value(d, path, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = d.Token()
		return out, err
	}
	return tok, nil
}

// prune takes out keys that nothing here is named exactly, and says so.
func (l *loader) prune(source, path string, tree map[string]any, typ reflect.Type) {
	fields := map[string]reflect.Type{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = f.Type
	}
	for _, key := range keys(tree) {
		at := strings.TrimPrefix(path+"."+key, ".")
		field, ok := fields[key]
		if !ok {
			// A schema beside the settings is for editors.
			if at != "$schema" {
				l.note(source, "%.80q is not a setting, and is ignored", at)
			}
			delete(tree, key)
			continue
		}
		if sub, ok := tree[key].(map[string]any); ok && field.Kind() == reflect.Struct {
			l.prune(source, at, sub, field)
		}
	}
}

func keys(tree map[string]any) []string {
	out := make([]string, 0, len(tree))
	for k := range tree {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// forbidding keeps of a project's settings what can only forbid.
func (l *loader) forbidding(source string, tree map[string]any) map[string]any {
	kept := map[string]any{}
	drop := func(at string) {
		l.note(source, "%s is ignored: the files of a project can only ask and deny until its folder is trusted", at)
	}
	for _, key := range keys(tree) {
		rules, ok := tree[key].(map[string]any)
		if key != "permissions" {
			drop(key)
			continue
		}
		if !ok {
			kept[key] = tree[key] // of a wrong type, which is an error
			continue
		}
		for _, name := range keys(rules) {
			if name != "deny" && name != "ask" {
				drop(key + "." + name)
				delete(rules, name)
			}
		}
		kept[key] = rules
	}
	return kept
}
