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
	for _, name := range []string{".drover/settings.json", ".drover/settings.local.json"} {
		s.file(name, ours)
	}
	for _, name := range []string{".claude/settings.json", ".claude/settings.local.json"} {
		s.file(name, theirs)
	}
	s.file(".mcp.json", servers)
	s.file(".drover/mcp.json", servers)
	for _, f := range []struct {
		dir, end string
		read     reading
	}{
		{".github/hooks", ".json", hooks},
		{".drover/agents", ".md", agent}, {".claude/agents", ".md", agent}, {".github/agents", ".md", agent},
	} {
		for _, name := range s.below(f.dir, f.end) {
			s.file(name, f.read)
		}
	}
	for _, f := range []struct{ dir, end string }{
		{".drover/commands", ".md"}, {".claude/commands", ".md"}, {".github/prompts", ".prompt.md"},
	} {
		for _, name := range s.below(f.dir, f.end) {
			s.file(name, prompt)
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
	names := make([]string, 0, len(s.sums))
	for name := range s.sums {
		names = append(names, name)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
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

// reading returns the effects of a file, and the commands among them.
type reading func(data []byte) (what, commands []string, err error)

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
	what, commands, err := read(data)
	if err != nil {
		s.unseen(name, "%v", err)
		return
	}
	if len(what) == 0 && !strings.HasSuffix(name, ".json") {
		return // for JSON, a reader that sees more in it than this one may come
	}
	for _, w := range what {
		s.items = append(s.items, Item{name, w})
	}
	if len(s.items) > maxItems {
		s.items = s.items[:maxItems]
		s.unseen(name, "there are more than %d items", maxItems)
	}
	s.sums[name] = sum(data)
	for _, c := range commands {
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
func object(data []byte) (map[string]any, error) {
	var tree map[string]any
	if data = jsonc.Plain(data); len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, errors.New("it is not a JSON object")
	}
	return tree, nil
}

// ours reads settings of Drover: all that does not only forbid.
func ours(data []byte) (what, commands []string, err error) {
	tree, err := object(data)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys(tree) {
		switch key {
		case "$schema":
		case "hooks":
			w, c := hooksOf(tree[key])
			what, commands = append(what, w...), append(commands, c...)
		case "permissions":
			what = append(what, permissions(tree[key])...)
		default:
			what = append(what, fmt.Sprintf("sets %s to %s", key, short(tree[key])))
		}
	}
	return what, commands, nil
}

// theirs reads settings of another program: hooks, and what else of them counts.
func theirs(data []byte) (what, commands []string, err error) {
	what, commands, err = hooks(data)
	if err != nil {
		return nil, nil, err
	}
	tree, err := object(data)
	if err != nil {
		return nil, nil, err
	}
	rules, _ := tree["permissions"].(map[string]any)
	counts := map[string]any{}
	for _, key := range []string{"allow", "additionalDirectories", "defaultMode"} {
		if v, ok := rules[key]; ok {
			counts[key] = v
		}
	}
	what = append(what, permissions(counts)...)
	for _, key := range []string{"model", "env", "enabledPlugins"} {
		if v, ok := tree[key]; ok {
			what = append(what, fmt.Sprintf("sets %s to %s", key, short(v)))
		}
	}
	return what, commands, nil
}

func permissions(v any) []string {
	tree, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	var out []string
	for _, key := range keys(tree) {
		switch key {
		case "deny", "ask":
		case "allow":
			rules, _ := tree[key].([]any)
			for _, r := range rules {
				out = append(out, fmt.Sprintf("allows %v without a question", r))
			}
		default:
			out = append(out, fmt.Sprintf("sets permissions.%s to %s", key, short(tree[key])))
		}
	}
	return out
}

// hooks reads a file of hooks, with or without an object around them.
func hooks(data []byte) (what, commands []string, err error) {
	tree, err := object(data)
	if err != nil {
		return nil, nil, err
	}
	inner, ok := tree["hooks"]
	if !ok {
		inner = events(tree)
	}
	what, commands = hooksOf(inner)
	return what, commands, nil
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

// hooksOf finds the commands and addresses of hooks by their names, in
// whatever form they stand.
func hooksOf(v any) (what, commands []string) {
	tree, ok := v.(map[string]any)
	if !ok {
		if v != nil {
			what = append(what, "has hooks: "+short(v))
		}
		return what, nil
	}
	for _, event := range keys(tree) {
		lines := leaves(tree[event], 0, "command", "bash", "url", "prompt")
		for _, l := range lines {
			what = append(what, fmt.Sprintf("runs at %s: %s", event, l))
		}
		if list, empty := tree[event].([]any); len(lines) == 0 && (!empty || len(list) > 0) {
			what = append(what, fmt.Sprintf("has a hook at %s: %s", event, short(tree[event])))
		}
		commands = append(commands, lines...)
	}
	return what, commands
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
func servers(data []byte) (what, commands []string, err error) {
	tree, err := object(data)
	if err != nil {
		return nil, nil, err
	}
	list, ok := tree["mcpServers"]
	if !ok {
		list = tree["servers"]
	}
	what, commands = serversOf(list)
	return what, commands, nil
}

func serversOf(v any) (what, commands []string) {
	if list, ok := v.([]any); ok {
		for _, item := range list {
			if name, ok := item.(string); ok {
				what = append(what, "uses the MCP server "+name)
				continue
			}
			w, c := serversOf(item)
			what, commands = append(what, w...), append(commands, c...)
		}
		return what, commands
	}
	tree, ok := v.(map[string]any)
	if !ok {
		return nil, nil
	}
	for _, name := range keys(tree) {
		one, _ := tree[name].(map[string]any)
		line := []string{text(one["command"])}
		args, _ := one["args"].([]any)
		for _, a := range args {
			line = append(line, text(a))
		}
		switch url := text(one["url"]); {
		case line[0] != "":
			what = append(what, fmt.Sprintf("starts the MCP server %s: %s", name, strings.Join(line, " ")))
			commands = append(commands, strings.Join(line, " "))
		case url != "":
			what = append(what, fmt.Sprintf("connects to the MCP server %s at %s", name, url))
		default:
			what = append(what, fmt.Sprintf("has the MCP server %s: %s", name, short(tree[name])))
		}
	}
	return what, commands
}

// agent reads the definition of an agent: only hooks, servers and its program count.
func agent(data []byte) (what, commands []string, err error) {
	// Its tools and prompts run nothing by themselves, whatever else is wrong.
	d, err := frontmatter.Parse(data, frontmatter.AgentKeys())
	if err != nil {
		return nil, nil, err
	}
	if f, ok := d.Get("hooks"); ok {
		what, commands = hooksOf(f.Value)
	}
	if f, ok := d.Get("acp"); ok {
		what = append(what, "is an agent of another vendor: "+short(f.Value))
		commands = append(commands, programOf(f.Value)...)
	}
	for _, key := range []string{"mcpServers", "mcp-servers"} {
		f, ok := d.Get(key)
		if !ok {
			continue
		}
		w, c := serversOf(f.Value)
		if len(w) == 0 && text(f.Value) != "" {
			w = []string{"uses MCP servers: " + short(f.Value)}
		}
		what, commands = append(what, w...), append(commands, c...)
	}
	return what, commands, nil
}

// programOf is the line of the program of an agent of another vendor.
func programOf(v any) []string {
	parts, ok := v.(map[string]any)
	if !ok {
		return []string{text(v)}
	}
	line := []string{text(parts["command"])}
	args, _ := parts["args"].([]any)
	for _, a := range args {
		line = append(line, text(a))
	}
	return []string{strings.Join(line, " ")}
}

// prompt reads a command: its shell lines and inclusions when it is called, and the rules
// that it asks for. An unreadable command cannot be called.
func prompt(data []byte) (what, commands []string, err error) {
	c, err := command.Read(data)
	if err != nil {
		return nil, nil, nil
	}
	return command.Effects(c), c.Template.ShellLines(), nil
}

// allowed reads a SKILL.md: the rules that it asks for count, and the commands that it
// runs when the user calls it by its name.
func allowed(data []byte) (what, commands []string, err error) {
	d, err := frontmatter.Parse(data, frontmatter.SkillKeys())
	if err != nil {
		return nil, nil, err
	}
	for _, rule := range d.List("allowed-tools") {
		what = append(what, fmt.Sprintf("allows %s without a question, once the skill is used", rule))
	}
	c := command.Command{Template: command.Parse(d.Body)}
	return append(what, command.Effects(c)...), c.Template.ShellLines(), nil
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

func keys(tree map[string]any) []string {
	out := make([]string, 0, len(tree))
	for k := range tree {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
