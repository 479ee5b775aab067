package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/jsonc"
)

const (
	maxFile      = 1 << 20
	maxHookFiles = 100
)

// level bounds the settings of a source.
type level int

const (
	untrusted level = iota // a project: what forbids
	project                // a project that is trusted: all but what leads elsewhere
	own                    // the user
)

func (l *loader) file(path string, of level) {
	if data, ok := l.data(path); ok {
		l.layer(path, data, of)
	}
}

func (l *loader) data(path string) ([]byte, bool) {
	if path == "" {
		return nil, false
	}
	data, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.errs = append(l.errs, fmt.Errorf("settings file %s %w", path, err))
	}
	return data, err == nil
}

func (l *loader) flagFile(path string) {
	if _, err := os.Stat(path); err != nil {
		l.errs = append(l.errs, fmt.Errorf("settings file %s cannot be read: %w", path, err))
		return
	}
	l.file(path, own)
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

// layer lays the settings of one source over those before it, cut down to what
// it may set, and brings them into their bounds.
func (l *loader) layer(source string, data []byte, of level) {
	fail := func(err error) { l.fail(source, err) }
	tree, lines, err := decode(data)
	if err != nil {
		fail(err)
		return
	}
	l.prune(source, "", tree, reflect.TypeFor[options.Options]())
	if hooks, ok := tree["hooks"]; ok {
		if err := l.hooks(source, hooks, of); err != nil {
			fail(err)
			return
		}
	}
	switch of {
	case untrusted:
		tree = l.forbidding(source, tree)
	case project:
		l.restrict(source, tree)
	}
	delete(tree, "hooks")
	if err := l.times(source, tree, lines); err != nil {
		fail(err)
		return
	}
	clean, err := json.Marshal(tree)
	if err != nil {
		fail(err)
		return
	}
	next := l.set.clone()
	next.Permissions.Allow, next.Permissions.Ask, next.Permissions.Deny = nil, nil, nil
	if err := json.Unmarshal(clean, &next.Options); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = atLine(lines[wrong.Field], fmt.Errorf("%s is a %s, and should be a %s", wrong.Field, wrong.Value, wrong.Type))
		}
		fail(err)
		return
	}
	rules := Source{source, next.Permissions.Allow, next.Permissions.Ask, next.Permissions.Deny}
	before := l.set.Permissions
	next.Permissions.Allow, next.Permissions.Ask, next.Permissions.Deny = before.Allow, before.Ask, before.Deny
	next.Add(rules)
	was := l.set.Options
	l.set = next
	l.within(source, was)
}

// Add adds the rules of a source, if it has some.
func (s *Settings) Add(src Source) {
	if len(src.Allow)+len(src.Ask)+len(src.Deny) == 0 {
		return
	}
	p := &s.Permissions
	p.Allow, p.Ask, p.Deny = union(p.Allow, src.Allow), union(p.Ask, src.Ask), union(p.Deny, src.Deny)
	s.RuleSources = append(slices.Clip(s.RuleSources), src)
}

func (l *loader) fail(source string, err error) {
	if at, ok := errors.AsType[*lineError](err); ok {
		source, err = fmt.Sprintf("%s:%d", source, at.line), at.err
	}
	l.errs = append(l.errs, fmt.Errorf("settings in %s: %w (correct it, or move it away)", source, err))
}

// lineError is an error in a line of a file.
type lineError struct {
	line int // from 1
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// atLine says where an error is, if that is known.
func atLine(line int, err error) error {
	if line == 0 {
		return err
	}
	return &lineError{line, err}
}

// clone shares nothing that reading another source would change.
func (s Settings) clone() Settings {
	m := &s.Models
	m.Aliases, m.Prices, m.Windows = maps.Clone(m.Aliases), maps.Clone(m.Prices), maps.Clone(m.Windows)
	m.Multipliers, m.Complementary = maps.Clone(m.Multipliers), maps.Clone(m.Complementary)
	m.Available = slices.Clone(m.Available)
	s.Remote.Services, s.Remote.Checkers = maps.Clone(s.Remote.Services), maps.Clone(s.Remote.Checkers)
	s.Plugins = slices.Clone(s.Plugins)
	s.Terminal.Keys = maps.Clone(s.Terminal.Keys)
	return s
}

// events are hooks that stand without an object around them, as some texts
// show it: lists of objects under names that begin with a capital letter.
func events(tree map[string]any) any {
	out := map[string]any{}
	for key, v := range tree {
		list, ok := v.([]any)
		if !ok || len(list) == 0 || key == "" || key[0] < 'A' || key[0] > 'Z' {
			continue
		}
		if !slices.ContainsFunc(list, func(item any) bool { _, object := item.(map[string]any); return !object }) {
			out[key] = v
		}
	}
	return out
}

// hookDir notes the files of hooks of a folder. Their content is read
// elsewhere.
func (l *loader) hookDir(dir string, trusted bool) {
	entries, err := os.ReadDir(dir)
	if dir == "" || errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		l.note(dir, "the hooks in it cannot be read, and do not run: %v", err)
	}
	for i, e := range entries {
		if i == maxHookFiles {
			l.note(dir, "only the first %d files are read", maxHookFiles)
			return
		}
		if path := filepath.Join(dir, e.Name()); filepath.Ext(path) == ".json" {
			if data, ok := l.data(path); ok {
				l.set.HookSources = append(slices.Clip(l.set.HookSources), HookFile{Path: path, Data: data, Trusted: trusted})
			}
		}
	}
}

// hooks notes the hooks of a source, and adds the ones that may run to the hooks of
// the earlier sources.
func (l *loader) hooks(source string, v any, of level) error {
	tree, ok := v.(map[string]any)
	if !ok {
		return errors.New("hooks is not an object of event names")
	}
	if len(tree) == 0 {
		return nil
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	l.set.HookSources = append(slices.Clip(l.set.HookSources), HookFile{
		Path: source, Data: data, Trusted: of != untrusted, User: of == own,
	})
	if of == untrusted {
		return nil
	}
	joined := maps.Clone(l.set.Hooks)
	if joined == nil {
		joined = map[string]any{}
	}
	for _, event := range keys(tree) {
		list, ok := tree[event].([]any)
		if !ok {
			l.note(source, "hooks.%.80s is not a list, and is ignored", event)
			continue
		}
		before, _ := joined[event].([]any)
		joined[event] = slices.Concat(before, list)
	}
	l.set.Hooks = joined
	return nil
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

// decode reads one JSON object, with comments, and strictly otherwise: two values for one key would let a
// reader see one and Drover use the other. lines has the lines of its keys, by their paths.
func decode(data []byte) (tree map[string]any, lines map[string]int, err error) {
	data = jsonc.Plain(data)
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, nil, errors.New("it is empty; no settings at all are written {}")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, nil, errors.New("it is UTF-16; write it as UTF-8")
	case !utf8.Valid(data):
		return nil, nil, errors.New("it is not valid UTF-8")
	}
	r := reader{d: json.NewDecoder(bytes.NewReader(data)), data: data, lines: map[string]int{}}
	r.d.UseNumber()
	v, err := r.value("", 0)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, atLine(r.lineAt(int64(len(bytes.TrimSpace(data)))), errors.New("it ends in the middle"))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, nil, atLine(r.lineAt(syntax.Offset), err)
	}
	if err != nil {
		return nil, nil, atLine(r.line(), err)
	}
	if _, err := r.d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, atLine(r.line(), errors.New("something stands after the end of the object"))
	}
	tree, ok := v.(map[string]any)
	if !ok {
		return nil, nil, errors.New("it is not a JSON object")
	}
	return tree, r.lines, nil
}

// reader reads JSON and notes in which lines its keys stand.
type reader struct {
	d     *json.Decoder
	data  []byte
	lines map[string]int
}

func (r *reader) line() int { return r.lineAt(r.d.InputOffset()) }

func (r *reader) lineAt(offset int64) int {
	return 1 + bytes.Count(r.data[:min(offset, int64(len(r.data)))], []byte("\n"))
}

func (r *reader) value(path string, depth int) (any, error) {
	if depth > 100 {
		return nil, errors.New("it is nested more than 100 deep")
	}
	tok, err := r.d.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		out := map[string]any{}
		for r.d.More() {
			tok, err := r.d.Token()
			if err != nil {
				return nil, err
			}
			key, _ := tok.(string)
			at := strings.TrimPrefix(path+"."+key, ".")
			r.lines[at] = r.line()
			if _, twice := out[key]; twice {
				return nil, fmt.Errorf("%.80q is set twice", at)
			}
			if out[key], err = r.value(at, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = r.d.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for r.d.More() {
			v, err := r.value(path, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = r.d.Token()
		return out, err
	}
	return tok, nil
}

// prune takes out keys that nothing here is named exactly, and says so.
func (l *loader) prune(source, path string, tree map[string]any, typ reflect.Type) {
	fields := map[string]reflect.Type{}
	for f := range typ.Fields() {
		fields[options.Name(f)] = f.Type
	}
	for _, key := range keys(tree) {
		at := strings.TrimPrefix(path+"."+key, ".")
		field, ok := fields[key]
		if !ok {
			// A $schema is for editors.
			if at != "$schema" {
				l.note(source, "%.80q is not a setting, and is ignored", at)
			}
			delete(tree, key)
			continue
		}
		sub, ok := tree[key].(map[string]any)
		switch {
		case ok && field.Kind() == reflect.Struct:
			l.prune(source, at, sub, field)
		case ok && field.Kind() == reflect.Map && field.Elem().Kind() == reflect.Struct:
			for _, name := range keys(sub) {
				if one, ok := sub[name].(map[string]any); ok {
					l.prune(source, at+"."+name, one, field.Elem())
				}
			}
		}
	}
}

func keys(tree map[string]any) []string { return slices.Sorted(maps.Keys(tree)) }

// forbidding keeps of a project's settings what can only forbid.
func (l *loader) forbidding(source string, tree map[string]any) map[string]any {
	kept := map[string]any{}
	drop := func(at string) {
		l.note(source, "%s is ignored: the files of a project can only ask and deny until its folder is trusted", at)
		l.notes[len(l.notes)-1].Untrusted = true
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

// restrict takes out of a trusted project's settings those that a repository must not
// decide.
func (l *loader) restrict(source string, tree map[string]any) {
	l.withoutOwn(source, "", tree, reflect.TypeFor[options.Options]())
	if rules, ok := tree["permissions"].(map[string]any); ok && rules["defaultMode"] == "bypassPermissions" {
		l.note(source, "permissions.defaultMode bypassPermissions is ignored: the files of a project cannot set it")
		delete(rules, "defaultMode")
	}
	if box, ok := tree["sandbox"].(map[string]any); ok && box["mode"] == "off" {
		l.note(source, "sandbox.mode off is ignored: the files of a project cannot set it")
		delete(box, "mode")
	}
}
