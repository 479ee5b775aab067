package mcpconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

const (
	maxFile    = 1 << 20 // bytes
	maxServers = 200     // of one file
	maxName    = 128     // bytes
)

// Scope is the owner of a file.
type Scope string

// The scopes. A name in several scopes counts in the first of them.
const (
	Given   Scope = "given"   // with --mcp-config
	Project Scope = "project" // below the folder
	User    Scope = "user"
)

// File is one place where servers are named.
type File struct {
	Path  string // of the file, or the flag
	Scope Scope
	root  string            // a folder out of which no link may lead; empty: it is the user's own
	vars  map[string]string // further variables, for ${VAR} and for the server
}

// The files of a project, below its folder.
const (
	OwnProjectFile = ".drover/mcp.json"
	ProjectFile    = ".mcp.json"
)

// Files returns the usual files, the first of which wins.
func Files(env func(string) string, folder string) []File {
	files := []File{
		{Path: filepath.Join(folder, OwnProjectFile), Scope: Project, root: folder},
		{Path: filepath.Join(folder, ProjectFile), Scope: Project, root: folder},
	}
	if path := UserFile(env); path != "" {
		files = append(files, File{Path: path, Scope: User})
	}
	return files
}

// PluginFiles returns the files of the user's plugins, by their folders. The variable
// CLAUDE_PLUGIN_ROOT holds the folder.
func PluginFiles(dirs []string) []File {
	files := make([]File, len(dirs))
	for i, dir := range dirs {
		files[i] = File{Path: filepath.Join(dir, ProjectFile), Scope: User, root: dir,
			vars: map[string]string{"CLAUDE_PLUGIN_ROOT": dir}}
	}
	return files
}

// UserFile returns the file of the user; empty if the user has no configuration folder.
func UserFile(env func(string) string) string {
	if dir := home.Config(env); dir != "" {
		return filepath.Join(dir, "mcp.json")
	}
	return ""
}

// Entry is one server as a file has it.
type Entry struct {
	Name   string
	Server mcpclient.Server // without effect if Err is set
	Plain  mcpclient.Server // as in the file, without the values of variables, for display
	Path   string
	Scope  Scope
	Err    error // it cannot be used

	Waits    bool   // for trust in the folder
	Disabled bool   // by its own entry
	Hidden   bool   // another entry with its name wins
	Shadows  string // of the user's, whose name it has in rules: the path; empty: none
}

// Usable reports whether agents get the server.
func (e Entry) Usable() bool { return e.Err == nil && !e.Waits && !e.Disabled && !e.Hidden }

// Input names the sources of servers.
type Input struct {
	Given   []string // of --mcp-config: JSON that begins with {, or a file
	Cwd     string   // where relative files of Given are
	Files   []File
	Env     func(string) string // for ${VAR}
	Trusted func() bool         // the folder, asked after its files were read
	// Called returns the name of a server in tools and rules, which several servers may
	// share; nil: its own name.
	Called func(name string) string
}

// Read reads all files. The error names unreadable files; the entries of the others
// are returned in any case.
func Read(in Input) ([]Entry, error) {
	var out []Entry
	var errs []error
	add := func(f File, data []byte, err error) {
		if err == nil {
			var found []Entry
			found, err = Parse(data, f.lookup(in.Env))
			for _, e := range found {
				e.Path, e.Scope, e.Server.Bounded = f.Path, f.Scope, f.Scope == Project
				e.Server.Env = f.environ(e.Server)
				out = append(out, e)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read MCP servers of %s: %w", f.Path, err))
		}
	}
	for _, given := range in.Given {
		if text := strings.TrimSpace(given); strings.HasPrefix(text, "{") {
			add(File{Path: "--mcp-config", Scope: Given}, []byte(text), nil)
			continue
		}
		if !filepath.IsAbs(given) {
			given = filepath.Join(in.Cwd, given)
		}
		f := File{Path: given, Scope: Given}
		data, err := read(f, maxFile)
		add(f, data, err)
	}
	for _, f := range in.Files {
		data, err := read(f, maxFile)
		if !errors.Is(err, fs.ErrNotExist) {
			add(f, data, err)
		}
	}
	settle(out, in.Trusted, in.Called)
	return out, errors.Join(errs...)
}

// lookup returns env with the variables of the file, which win.
func (f File) lookup(env func(string) string) func(string) string {
	if len(f.vars) == 0 {
		return env
	}
	return func(name string) string {
		if v, ok := f.vars[name]; ok || env == nil {
			return v
		}
		return env(name)
	}
}

// environ returns the environment of a server with the variables of the file; the server's own
// win.
func (f File) environ(s mcpclient.Server) map[string]string {
	if len(f.vars) == 0 || s.Command == "" {
		return s.Env
	}
	out := maps.Clone(f.vars)
	maps.Copy(out, s.Env)
	return out
}

// settle decides which of the entries count.
func settle(entries []Entry, trusted func() bool, called func(string) string) {
	if called == nil {
		called = func(name string) string { return name }
	}
	project := slices.ContainsFunc(entries, func(e Entry) bool { return e.Scope == Project })
	waits := project && (trusted == nil || !trusted())
	taken := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		e.Waits = waits && e.Scope == Project
		if e.Waits {
			continue // an untrusted file takes no name away
		}
		e.Hidden = taken[e.Name]
		taken[e.Name] = true
	}
	for i := range entries {
		for _, other := range entries {
			if e := &entries[i]; e.Scope == Project && other.Scope == User && called(e.Name) == called(other.Name) &&
				e.Server.Key("") != other.Server.Key("") {
				e.Shadows = other.Path
			}
		}
	}
}

func read(f File, most int64) ([]byte, error) {
	dir, name := cmp.Or(f.root, filepath.Dir(f.Path)), filepath.Base(f.Path)
	if f.root == "" { // the user's own may be a link to anywhere
		path, err := filepath.EvalSymlinks(f.Path)
		if err != nil {
			return nil, err
		}
		dir, name = filepath.Dir(path), filepath.Base(path)
	} else if rel, err := filepath.Rel(f.root, f.Path); err == nil {
		name = rel
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return untrusted.Read(root, name, most)
}

// Parse reads the text of a file: an object with mcpServers, or servers, from
// names to servers, in the order of their names.
func Parse(data []byte, env func(string) string) ([]Entry, error) {
	var tree map[string]json.RawMessage
	if data = jsonc.Plain(data); len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if err := strictly(data, &tree); err != nil {
		return nil, fmt.Errorf("it is no JSON object: %w", err)
	}
	raw, ok := tree["mcpServers"]
	if !ok {
		if raw, ok = tree["servers"]; !ok {
			return nil, nil
		}
	}
	var list map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("mcpServers is no object: %w", err)
	}
	if len(list) > maxServers {
		return nil, fmt.Errorf("it names %d servers, more than %d", len(list), maxServers)
	}
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(list)) {
		e := Entry{Name: name}
		e.Server, e.Disabled, e.Err = One(list[name], env)
		_ = json.Unmarshal(list[name], &e.Plain) // One has reported its mistakes
		if bad := CheckName(name); bad != nil {
			e.Err = bad
		}
		out = append(out, e)
	}
	return out, nil
}

// strictly is json.Unmarshal that refuses text after the first value.
func strictly(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind it")
	}
	return nil
}

// CheckName refuses a name that could not be shown or typed.
func CheckName(name string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if strings.TrimSpace(name) == "" || len(name) > maxName || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("%.200q is no name of a server (use up to %d printable characters)", name, maxName)
	}
	return nil
}

// One reads one server. It ignores unknown keys: other programs share the files.
func One(raw json.RawMessage, env func(string) string) (s mcpclient.Server, disabled bool, err error) {
	var off struct {
		Disabled bool `json:"disabled"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, false, fmt.Errorf("it is not understood: %w", err)
	}
	_ = json.Unmarshal(raw, &off) // only a boolean turns it off
	if err := expand(&s, env); err != nil {
		return s, off.Disabled, err
	}
	return s, off.Disabled, s.Check()
}

// expand replaces variables in every text of a server.
func expand(s *mcpclient.Server, env func(string) string) error {
	var errs []error
	put := func(text string) string {
		out, err := Expand(text, env)
		if err != nil {
			errs = append(errs, err)
		}
		return out
	}
	s.Command, s.Cwd, s.URL = put(s.Command), put(s.Cwd), put(s.URL)
	s.Args = slices.Clone(s.Args)
	for i, a := range s.Args {
		s.Args[i] = put(a)
	}
	for _, m := range []map[string]string{s.Env, s.Headers} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			m[k] = put(m[k])
		}
	}
	return errors.Join(errs...)
}

// Expand replaces ${VAR} and ${VAR:-default}. An unset variable without a
// default is an error; other text stays.
func Expand(text string, env func(string) string) (string, error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "${")
		b.WriteString(before)
		inner, after, closed := strings.Cut(rest, "}")
		name, def, has := strings.Cut(inner, ":-")
		switch {
		case !ok:
			return b.String(), nil
		case !closed || !isVariable(name):
			b.WriteString("${")
			text = rest
			continue
		}
		value := ""
		if env != nil {
			value = env(name)
		}
		if value == "" && !has {
			return "", fmt.Errorf("variable %s is not set (set it, or write ${%s:-a default})", name, name)
		}
		b.WriteString(cmp.Or(value, def))
		text = after
	}
}

func isVariable(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
