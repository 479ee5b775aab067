package trust

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/platform/frontmatter"
	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/internal/platform/untrusted"
	"github.com/drover-dev/drover/internal/project/command"
)

// Bounds of a survey.
const (
	maxFiles = 2000
	maxFile  = 1 << 20 // bytes of a file with settings or definitions
	maxNamed = 8 << 20 // bytes of a file that a command names
	maxItems = 1000
)

// Item is one thing that the files of a folder would have Drover do.
type Item struct {
	File string `json:"file"` // relative to the folder
	What string `json:"what"`
}

// survey is the list of findings in a folder.
type survey struct {
	root  *os.Root
	items []Item
	sums  map[string]string // of the files that items come from, by name
	blind []Item            // files that could not be looked at
}

// look takes stock of a folder.
func look(folder string) (survey, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return survey{}, fmt.Errorf("look at folder %s: %w", folder, err)
	}
	defer func() { _ = root.Close() }()
	s := survey{root: root, sums: map[string]string{}}
	for _, f := range []struct {
		name string
		read reading
	}{
		{".drover/settings.json", object(ours)}, {".drover/settings.local.json", object(ours)},
		{".claude/settings.json", object(theirs)}, {".claude/settings.local.json", object(theirs)},
		{".mcp.json", object(servers)}, {".drover/mcp.json", object(servers)},
	} {
		s.file(f.name, f.read)
	}
	for _, f := range []struct {
		dir, end string
		read     reading
	}{
		{".github/hooks", ".json", object(hooks)},
		{".drover/agents", ".md", agent}, {".claude/agents", ".md", agent}, {".github/agents", ".md", agent},
		{".drover/commands", ".md", prompt}, {".claude/commands", ".md", prompt}, {".github/prompts", ".prompt.md", prompt},
	} {
		for _, name := range s.below(f.dir, f.end) {
			s.file(name, f.read)
		}
	}
	for _, dir := range []string{".drover/skills", ".claude/skills", ".github/skills"} {
		s.skills(dir)
	}
	order := func(a, b Item) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.What, b.What)) }
	slices.SortStableFunc(s.items, order)
	slices.SortFunc(s.blind, order)
	s.root = nil
	return s, nil
}

// digest returns the digest of the files and their contents.
func (s survey) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.sums)) {
		fmt.Fprintf(h, "%q %s\n", name, s.sums[name])
	}
	// Trust that was given when only hooks of these files counted does not cover the rest.
	for _, item := range s.items {
		if strings.HasPrefix(item.File, ".claude/settings") &&
			(strings.HasPrefix(item.What, "sets ") || strings.HasPrefix(item.What, "allows ")) {
			fmt.Fprintf(h, "%q %q\n", item.File, item.What)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (s *survey) unseen(name, format string, args ...any) {
	s.blind = append(s.blind, Item{name, "cannot be looked at: " + fmt.Sprintf(format, args...)})
}

// below lists the files of a folder and of those in it.
func (s *survey) below(dir, end string) []string {
	var out []string
	if _, err := s.root.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	below, err := s.root.OpenRoot(dir)
	if err != nil {
		s.unseen(dir, "it is no folder in this one")
		return nil
	}
	defer func() { _ = below.Close() }()
	count := 0
	err = fs.WalkDir(below.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if count++; count > maxFiles {
			return fmt.Errorf("it has more than %d files", maxFiles)
		}
		at := path.Join(dir, name)
		if info, err := s.root.Stat(at); d.Type()&fs.ModeSymlink != 0 && (err != nil || info.IsDir()) {
			s.unseen(at, "it is a link")
		} else if strings.HasSuffix(name, end) && !d.IsDir() {
			out = append(out, at)
		}
		return nil
	})
	if err != nil {
		s.unseen(dir, "%v", err)
	}
	return out
}

// skills looks at the SKILL.md of each folder in a folder. Links are followed
// as far as they stay below the root, as who reads skills does.
func (s *survey) skills(dir string) {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil || len(entries) > maxFiles {
		s.unseen(dir, "it cannot be listed, or has more than %d entries", maxFiles)
		return
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name(), "SKILL.md")
		if info, err := s.root.Stat(name); err == nil && !info.IsDir() {
			s.file(name, allowed)
		}
	}
}

// effects are what a file would have Drover do, and the commands that it names.
type effects struct{ what, commands []string }

func (e *effects) add(format string, args ...any) {
	e.what = append(e.what, fmt.Sprintf(format, args...))
}

// reading adds the effects of a file.
type reading func(e *effects, data []byte) error

func (s *survey) file(name string, read reading) {
	data, err := untrusted.Read(s.root, name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := s.root.Lstat(name); err == nil && !info.IsDir() {
			s.unseen(name, "it is a link to nothing")
		}
		return
	}
	if err != nil {
		s.unseen(name, "%v", err)
		return
	}
	var e effects
	if err := read(&e, data); err != nil {
		s.unseen(name, "%v", err)
		return
	}
	if len(e.what) == 0 && !strings.HasSuffix(name, ".json") {
		return // for JSON, a reader that sees more in it than this one may come
	}
	for _, w := range e.what {
		s.items = append(s.items, Item{name, w})
	}
	if len(s.items) > maxItems {
		s.items = s.items[:maxItems]
		s.unseen(name, "there are more than %d items", maxItems)
	}
	s.sums[name] = sum(data)
	for _, c := range e.commands {
		s.named(c)
	}
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// named adds the files of the folder that a command names: to change the script
// is to change the command. A file that it reaches in another way, as make
// reaches its Makefile, is not known.
func (s *survey) named(command string) {
	ends := func(r rune) bool { return strings.ContainsRune(" \t\n'\"`;|&<>()=", r) }
	for _, word := range strings.FieldsFunc(command, ends) {
		for _, v := range []string{"$CLAUDE_PROJECT_DIR/", "${CLAUDE_PROJECT_DIR}/", "$DROVER_PROJECT_DIR/",
			"${DROVER_PROJECT_DIR}/"} {
			word = strings.TrimPrefix(word, v)
		}
		name := path.Clean(word)
		if !filepath.IsLocal(name) || s.sums[name] != "" {
			continue
		}
		info, err := s.root.Stat(name)
		if err != nil || info.IsDir() {
			continue // a word like any other
		}
		data, err := untrusted.Read(s.root, name, maxNamed)
		if err != nil {
			s.unseen(name, "%v", err)
			continue
		}
		s.sums[name] = sum(data)
	}
}

// object reads a JSON object and refuses what two readers could see differently.
func object(read func(*effects, map[string]any)) reading {
	return func(e *effects, data []byte) error {
		var tree map[string]any
		if data = jsonc.Plain(data); len(bytes.TrimSpace(data)) > 0 && json.Unmarshal(data, &tree) != nil {
			return errors.New("it is not a JSON object")
		}
		read(e, tree)
		return nil
	}
}

// ours reads settings of Drover: all that does not only forbid.
func ours(e *effects, tree map[string]any) {
	for _, key := range keys(tree) {
		switch key {
		case "$schema":
		case "hooks":
			e.hooks(tree[key])
		case "permissions":
			e.permissions(tree[key])
		default:
			e.add("sets %s to %s", key, short(tree[key]))
		}
	}
}

// theirs reads settings of another program: hooks, and what else of them counts.
func theirs(e *effects, tree map[string]any) {
	hooks(e, tree)
	rules, _ := tree["permissions"].(map[string]any)
	counts := map[string]any{}
	for _, key := range []string{"allow", "additionalDirectories", "defaultMode"} {
		if v, ok := rules[key]; ok {
			counts[key] = v
		}
	}
	e.permissions(counts)
	for _, key := range []string{"model", "env", "enabledPlugins"} {
		if v, ok := tree[key]; ok {
			e.add("sets %s to %s", key, short(v))
		}
	}
}

func (e *effects) permissions(v any) {
	tree, _ := v.(map[string]any)
	for _, key := range keys(tree) {
		switch key {
		case "deny", "ask":
		case "allow":
			rules, _ := tree[key].([]any)
			for _, r := range rules {
				e.add("allows %v without a question", r)
			}
		default:
			e.add("sets permissions.%s to %s", key, short(tree[key]))
		}
	}
}

// hooks reads a file of hooks, with or without an object around them.
func hooks(e *effects, tree map[string]any) {
	inner, ok := tree["hooks"]
	if !ok {
		inner = events(tree)
	}
	e.hooks(inner)
}

// events are the hooks of a file that has them without an object around them:
// lists of objects.
func events(tree map[string]any) map[string]any {
	out := map[string]any{}
	for key, v := range tree {
		list, ok := v.([]any)
		if ok && len(list) > 0 &&
			!slices.ContainsFunc(list, func(item any) bool { _, object := item.(map[string]any); return !object }) {
			out[key] = v
		}
	}
	return out
}

// hooks finds the commands and addresses of hooks by their names, in
// whatever form they stand.
func (e *effects) hooks(v any) {
	tree, ok := v.(map[string]any)
	if !ok && v != nil {
		e.add("has hooks: %s", short(v))
	}
	for _, event := range keys(tree) {
		lines := leaves(tree[event], 0, "command", "bash", "url", "prompt")
		for _, l := range lines {
			e.add("runs at %s: %s", event, l)
		}
		if list, empty := tree[event].([]any); len(lines) == 0 && (!empty || len(list) > 0) {
			e.add("has a hook at %s: %s", event, short(tree[event]))
		}
		e.commands = append(e.commands, lines...)
	}
}

// leaves are the texts under some keys, however deep.
func leaves(v any, depth int, names ...string) []string {
	var out []string
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if depth < 20 {
				out = append(out, leaves(item, depth+1, names...)...)
			}
		}
	case map[string]any:
		for _, key := range keys(v) {
			if text, ok := v[key].(string); ok && slices.Contains(names, key) {
				out = append(out, text)
			} else if depth < 20 {
				out = append(out, leaves(v[key], depth+1, names...)...)
			}
		}
	}
	return out
}

// servers reads .mcp.json.
func servers(e *effects, tree map[string]any) {
	list, ok := tree["mcpServers"]
	if !ok {
		list = tree["servers"]
	}
	e.servers(list)
}

func (e *effects) servers(v any) {
	list, _ := v.([]any)
	for _, item := range list {
		if name, ok := item.(string); ok {
			e.add("uses the MCP server %s", name)
		} else {
			e.servers(item)
		}
	}
	tree, _ := v.(map[string]any)
	for _, name := range keys(tree) {
		one, _ := tree[name].(map[string]any)
		switch line, url := program(one), text(one["url"]); {
		case text(one["command"]) != "":
			e.add("starts the MCP server %s: %s", name, line)
			e.commands = append(e.commands, line)
		case url != "":
			e.add("connects to the MCP server %s at %s", name, url)
		default:
			e.add("has the MCP server %s: %s", name, short(tree[name]))
		}
	}
}

// program is the command line of a program.
func program(parts map[string]any) string {
	line := []string{text(parts["command"])}
	args, _ := parts["args"].([]any)
	for _, a := range args {
		line = append(line, text(a))
	}
	return strings.Join(line, " ")
}

// agent reads the definition of an agent: only hooks, servers and its program count.
func agent(e *effects, data []byte) error {
	// Its tools and prompts run nothing by themselves, whatever else is wrong.
	d, err := frontmatter.Parse(data, frontmatter.AgentKeys())
	if err != nil {
		return err
	}
	if f, ok := d.Get("hooks"); ok {
		e.hooks(f.Value)
	}
	if f, ok := d.Get("acp"); ok {
		e.add("is an agent of another vendor: %s", short(f.Value))
		line := text(f.Value)
		if parts, ok := f.Value.(map[string]any); ok {
			line = program(parts)
		}
		e.commands = append(e.commands, line)
	}
	for _, key := range []string{"mcpServers", "mcp-servers"} {
		f, ok := d.Get(key)
		if !ok {
			continue
		}
		before := len(e.what)
		if e.servers(f.Value); len(e.what) == before && text(f.Value) != "" {
			e.add("uses MCP servers: %s", short(f.Value))
		}
	}
	return nil
}

// prompt reads a command: its shell lines and inclusions when it is called, and the rules
// that it asks for. An unreadable command cannot be called.
func prompt(e *effects, data []byte) error {
	if c, err := command.Read(data); err == nil {
		e.command(c)
	}
	return nil
}

func (e *effects) command(c command.Command) {
	e.what = append(e.what, command.Effects(c)...)
	e.commands = append(e.commands, c.Template.ShellLines()...)
}

// allowed reads a SKILL.md: the rules that it asks for count, and the commands that it
// runs when the user calls it by its name.
func allowed(e *effects, data []byte) error {
	d, err := frontmatter.Parse(data, frontmatter.SkillKeys())
	if err != nil {
		return err
	}
	for _, rule := range d.List("allowed-tools") {
		e.add("allows %s without a question, once the skill is used", rule)
	}
	e.command(command.Command{Template: command.Parse(d.Body)})
	return nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func short(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "something that is no JSON"
	}
	if r := []rune(string(data)); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return string(data)
}

func keys(tree map[string]any) []string { return slices.Sorted(maps.Keys(tree)) }
