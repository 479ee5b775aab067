package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/frontmatter"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/subagent"
)

// Dialect is whose form a definition has. It says what counts as its name, and
// what the names of tools mean.
type Dialect string

// The dialects. Claude is ours too.
const (
	Claude  Dialect = "claude"
	Copilot Dialect = "copilot"
)

// dialectOf is the dialect of a file: Copilot's have their ending, or lie in its folder.
func dialectOf(path string, in definitions.Place) Dialect {
	if strings.HasSuffix(path, ".agent.md") || strings.HasSuffix(in.Path(), filepath.Join(".github", "agents")) {
		return Copilot
	}
	return Claude
}

// Bounds of a definition.
const (
	maxName   = 100    // code points
	maxPrompt = 30_000 // characters, in Copilot's dialect
)

// Entry is one definition with what the catalog knows of it.
type Entry struct {
	subagent.Definition
	Dialect Dialect
	Level   definitions.Level

	NoUser bool // it is not to be offered to people

	// Spawns are the types that it may start, normalized; nil: every one. If
	// Tools is a list, its Agent(x,y) says the same.
	Spawns []string

	Rest  []Key    // keys that have no effect here, as they are
	Waits []string // keys that have none until the project is trusted

	HiddenBy string // the source of that with the same name that counts; empty: this does
}

// Key is a key of a definition with its value.
type Key struct {
	Name  string `json:"name"`
	Line  int    `json:"line,omitempty"`
	Known bool   `json:"known"` // in one of the dialects
	Value any    `json:"value"`
}

// field is a key as a reader found it.
type field struct {
	Key
	text  string   // a scalar as it is written
	words []string // the items of a list
}

// Parse reads a definition from the text of a file. If it is false, the file is
// not a usable definition, and the last problem says why. The entry has everything
// that it would execute: the caller decides whether it may.
func Parse(path string, data []byte, d Dialect) (Entry, []Problem, bool) {
	r := &reader{file: path, dialect: d}
	doc, err := frontmatter.Parse(data, keys())
	if err != nil {
		return Entry{}, []Problem{refused(path, err)}, false
	}
	if !doc.Found {
		return Entry{}, []Problem{{File: path, Severity: Warning, What: "it has no front matter, so it is not an agent",
			Fix: "begin it with name and description between two lines of ---, or move it elsewhere"}}, false
	}
	for _, w := range doc.Warnings {
		r.problems = append(r.problems, bent(path, w))
	}
	for _, f := range doc.Fields {
		r.fields = append(r.fields, field{Key{Name: f.Key, Line: f.Line, Value: f.Value}, doc.Text(f.Key), f.Words()})
	}
	r.e.Prompt = excerpt.Inert(strings.TrimSpace(doc.Body))
	r.body = doc.BodyLine
	name := filepath.Base(path)
	return r.read(strings.TrimSuffix(strings.TrimSuffix(name, ".md"), ".agent"))
}

func keys() []string { return append(frontmatter.AgentKeys(), "github") }

// reader makes an entry of fields.
type reader struct {
	file     string
	dialect  Dialect
	given    bool // as JSON: the name is not among the fields, and the prompt is
	fields   []field
	body     int // line at which the prompt begins
	e        Entry
	problems []Problem
	used     []string
	broken   bool
}

func (r *reader) say(s Severity, key, what, fix string) {
	p := Problem{File: r.file, Severity: s, What: what, Fix: fix}
	if i := slices.IndexFunc(r.fields, func(f field) bool { return f.Name == key }); i >= 0 {
		p.Line = r.fields[i].Line
	}
	r.broken = r.broken || s == Error
	r.problems = append(r.problems, p)
}

// get returns a field that then counts as used.
func (r *reader) get(key string) (field, bool) {
	r.used = append(r.used, key)
	i := slices.IndexFunc(r.fields, func(f field) bool { return f.Name == key })
	if i < 0 {
		return field{}, false
	}
	return r.fields[i], true
}

func (r *reader) read(name string) (Entry, []Problem, bool) {
	r.e.Dialect, r.e.Source = r.dialect, r.file
	r.name(name)
	r.words()
	r.tools()
	r.model()
	r.e.MaxTurns = r.number("maxTurns")
	r.e.Effort = r.effort()
	r.e.PermissionMode = r.mode()
	r.e.Isolation = r.one("isolation", "worktree")
	r.e.On = r.text("on")
	if r.e.Sandbox = r.one("sandbox", "best", "required"); r.e.Sandbox == "" && r.text("sandbox") != "" {
		r.e.Sandbox = "required" // what protects is not left out for a typing error
	}
	r.e.OnEnd = r.one("onEnd", "stop", "reparent")
	r.e.Budget = r.budget()
	r.e.ACP = r.acp()
	r.e.Background = r.flag("background")
	r.e.NoModel = r.is("disable-model-invocation", true) || r.is("infer", false)
	r.e.NoUser = r.is("user-invocable", false) || r.is("user-invokable", false)
	r.e.Hooks = r.hooks()
	r.e.MCPServers = append(r.servers("mcpServers"), r.servers("mcp-servers")...)
	r.rest()
	if r.broken {
		slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
		return Entry{}, r.problems, false
	}
	return r.e, r.problems, true
}

// rank orders severities, the worst last.
func rank(s Severity) int { return slices.Index([]Severity{Note, Warning, Error}, s) }

// name finds out what the agent is called: what its author says, or in
// Copilot's dialect the file.
func (r *reader) name(file string) {
	own := r.text("name")
	name := own
	switch {
	case r.given:
		name, own = file, cmp.Or(own, file)
	case r.dialect == Copilot:
		name, own = file, cmp.Or(own, file)
	case own == "":
		name, own = file, file
		r.say(Warning, "name", fmt.Sprintf("there is no name; that of the file, %q, is taken", file),
			"write name: "+subagent.Normalize(file))
	case !usable(own):
		name, own = file, file
		r.say(Warning, "name",
			fmt.Sprintf("the name %.120q cannot be used; that of the file, %q, is taken", r.text("name"), file),
			fmt.Sprintf("use letters, digits and hyphens, at most %d", maxName))
	}
	if !usable(name) {
		r.say(Error, "name", fmt.Sprintf("the name %.120q cannot be used", name),
			fmt.Sprintf("use letters, digits and hyphens, at most %d", maxName))
		return
	}
	r.e.Name = subagent.Normalize(name)
	if slices.Contains([]string{"mcp-task", "main-session"}, r.e.Name) {
		r.say(Error, "name", fmt.Sprintf("the name %q has a meaning of its own", r.e.Name), "use another")
	}
	if own != r.e.Name {
		r.e.DisplayName = own
	}
}

// usable reports whether a name can be written wherever names are: in the call
// of a tool, in Agent(x,y), on a command line.
func usable(name string) bool {
	return subagent.Normalize(name) != "" && !strings.HasPrefix(name, "-") && utf8.RuneCountInString(name) <= maxName &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune(" -_.:+#&'", r)
		})
}

// words reads the texts that models see.
func (r *reader) words() {
	r.e.Description = r.text("description")
	r.e.InitialPrompt = excerpt.Inert(r.text("initialPrompt"))
	r.e.CriticalReminder = r.text("criticalSystemReminder_EXPERIMENTAL")
	r.e.Skills = r.list("skills")
	missing := Warning
	if r.given {
		r.e.Prompt = excerpt.Inert(r.text("prompt"))
		missing = Error
	}
	if r.e.Description == "" {
		r.say(missing, "description", "there is no description, so nobody knows when to use the agent",
			"say it in description")
	}
	if f, _ := r.get("acp"); r.e.Prompt == "" && f.Value == nil {
		r.say(missing, "prompt", "there is no prompt", "write what the agent is to do")
	}
	if n := utf8.RuneCountInString(r.e.Prompt); r.dialect == Copilot && n > maxPrompt {
		r.say(Warning, "", fmt.Sprintf("the prompt has %d characters, and Copilot takes %d", n, maxPrompt), "make it shorter")
		r.problems[len(r.problems)-1].Line = r.body
	}
}

// text is the value of a key that is to be no list and no object.
func (r *reader) text(key string) string {
	f, _ := r.get(key)
	switch f.Value.(type) {
	case []any, map[string]any:
		r.once(Warning, key, key+" is not a text; it does not count", "write one text")
	}
	return strings.TrimSpace(f.text)
}

// once says the same of a key one time only.
func (r *reader) once(s Severity, key, what, fix string) {
	if !slices.ContainsFunc(r.problems, func(p Problem) bool { return p.What == what }) {
		r.say(s, key, what, fix)
	}
}

// list is the value of a key that is to be a list: nil if the key is not there.
func (r *reader) list(key string) []string {
	f, ok := r.get(key)
	if !ok {
		return nil
	}
	if _, object := f.Value.(map[string]any); object || r.given && f.words == nil {
		r.once(Warning, key, key+" is not a list; it counts as an empty one", "write a list, as in [Read, Grep]")
		return []string{}
	}
	return f.words
}

// tools are those that it may use, and which agents it may start.
func (r *reader) tools() {
	words := r.list("tools")
	c := choose(words, r.dialect)
	r.ownServers(&c)
	r.tell("tools", c)
	if words != nil && !c.all {
		r.e.Tools = c.tools
	}
	if c.limited {
		r.e.Spawns = append([]string{}, c.spawns...)
	}
	if f, ok := r.get("tools"); ok && f.Value == nil {
		r.say(Warning, "tools", "tools is empty, so the agent has none", "write [] if that is meant, or take the key out")
	}
	if lost := slices.Concat(c.unknown, c.elsewhere, c.bound); r.dialect == Claude && !c.all && len(lost) > 0 &&
		len(c.tools) == 0 {
		r.say(Error, "tools", "no tool is left: there is no "+listed(lost),
			"name tools that there are, such as Read, Grep or Bash, or take the key out")
	}
	r.agents()
	if c.all && c.limited {
		r.say(Warning, "tools", "which agents it may start is not kept beside all tools", "name the tools")
	}
	r.forbidden()
}

// ownServers takes the names of servers that the definition brings with it as all
// their tools.
func (r *reader) ownServers(c *choice) {
	f, _ := r.get("mcp-servers")
	servers, _ := f.Value.(map[string]any)
	c.unknown = slices.DeleteFunc(c.unknown, func(name string) bool {
		_, own := servers[name]
		if own {
			c.put(name + "/*")
		}
		return own
	})
}

// flat reports whether all that a field holds are its words.
func (r *reader) flat(f field) bool {
	switch v := f.Value.(type) {
	case []any:
		return len(f.words) == len(v)
	case map[string]any:
		return false
	}
	return !r.given
}

// agents is Copilot's list of the agents that it may start.
func (r *reader) agents() {
	allowed := r.list("agents")
	if allowed == nil || slices.Contains(allowed, "*") {
		return
	}
	r.e.Spawns = types(strings.Join(allowed, ","))
	switch i := slices.Index(r.e.Tools, "Agent"); {
	case len(allowed) == 0:
		r.e.Spawns = []string{}
		r.e.DisallowedTools = []string{"Agent"}
	case i >= 0:
		r.e.Tools[i] = restricted(r.e.Spawns)
	case r.e.Tools == nil:
		r.say(Warning, "agents", "which agents it may start is not kept beside all tools", "name the tools")
	}
}

// forbidden are the tools that it may not use. What cannot be understood forbids
// more, not less.
func (r *reader) forbidden() {
	if f, ok := r.get("disallowedTools"); ok && !r.flat(f) {
		r.say(Error, "disallowedTools", "disallowedTools is not a list of names, so nobody knows what is forbidden",
			"write a list, as in [Bash, Write]")
		return
	}
	c := choose(r.list("disallowedTools"), r.dialect)
	for _, word := range c.bound {
		name, _, _ := strings.Cut(word, "(")
		for _, t := range named(strings.TrimSpace(name), r.dialect) {
			c.put(t)
		}
	}
	if c.limited {
		c.tools[slices.IndexFunc(c.tools, func(t string) bool { return strings.HasPrefix(t, "Agent(") })] = "Agent"
		c.bound = append(c.bound, restricted(c.spawns))
	}
	if len(c.bound) > 0 {
		r.say(Warning, "disallowedTools",
			"a rule in brackets cannot be kept here; the whole tool is forbidden: "+listed(c.bound),
			"write a permission rule instead")
	}
	if len(c.unknown) > 0 {
		r.say(Warning, "disallowedTools", "there is no "+listed(c.unknown)+" to forbid", "use the names of tools")
	}
	if c.all {
		r.e.Tools = []string{}
	}
	if len(c.tools) > 0 {
		r.e.DisallowedTools = append(r.e.DisallowedTools, c.tools...)
	}
}

// tell says which names of tools came to nothing.
func (r *reader) tell(key string, c choice) {
	if len(c.unknown) > 0 {
		if r.dialect == Copilot {
			r.say(Note, key, "tools not known here, and ignored: "+listed(c.unknown), "")
		} else {
			r.say(Warning, key, "there is no "+listed(c.unknown), "see `drover agents show` for what is left")
		}
	}
	if len(c.elsewhere) > 0 {
		r.say(Note, key, "Drover has no "+listed(c.elsewhere), "")
	}
	if len(c.bound) > 0 {
		r.say(Warning, key, "a rule in brackets cannot be kept here; the tool is left out: "+listed(c.bound),
			"name the tool alone, and write a permission rule for what it may do")
	}
}

func listed(names []string) string {
	const most = 12
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// model keeps names as they are: who chooses a model understands them.
func (r *reader) model() {
	f, _ := r.get("model")
	if _, ok := f.Value.([]any); ok {
		r.e.Model = strings.Join(f.words, " | ")
		return
	}
	r.e.Model = r.text("model")
}

func (r *reader) number(key string) int {
	text := r.text(key)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		r.say(Warning, key, fmt.Sprintf("%s is %.40q, which is no number above 0; it does not count", key, text),
			"write a number such as 20")
		return 0
	}
	return n
}

func (r *reader) effort() string {
	text := strings.ToLower(r.text("effort"))
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return text
	}
	return r.one("effort", "low", "medium", "high", "xhigh", "max")
}

// mode keeps the modes of the settings. That which lets everything pass is as
// harmless as any: a mode never gives more than the asking agent has.
func (r *reader) mode() string {
	mode := r.one("permissionMode", "default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto")
	if mode == "auto" {
		return "default"
	}
	return mode
}

// one is a text that must be one of some.
func (r *reader) one(key string, of ...string) string {
	text := r.text(key)
	if text == "" {
		return ""
	}
	i := slices.IndexFunc(of, func(s string) bool { return strings.EqualFold(s, text) })
	if i < 0 {
		r.say(Warning, key, fmt.Sprintf("%s is %.40q, which is not known; it does not count", key, text),
			"write "+strings.Join(of, ", "))
		return ""
	}
	return of[i]
}

func (r *reader) flag(key string) *bool {
	text := strings.ToLower(r.text(key))
	switch text {
	case "":
		return nil
	case "true", "yes", "on":
		return new(true)
	case "false", "no", "off":
		return new(false)
	}
	r.say(Warning, key, fmt.Sprintf("%s is %.40q; it does not count", key, text), "write true or false")
	return nil
}

func (r *reader) is(key string, want bool) bool {
	b := r.flag(key)
	return b != nil && *b == want
}

func (r *reader) hooks() map[string]any {
	f, ok := r.get("hooks")
	hooks, object := f.Value.(map[string]any)
	if ok && !object && f.Value != nil {
		r.say(Warning, "hooks", "hooks is not an object of events; it does not count", "write it as in settings")
	}
	if len(hooks) == 0 {
		return nil
	}
	return hooks
}

// servers are names of MCP servers, and objects with one name and how to reach
// that server each.
func (r *reader) servers(key string) []any {
	f, ok := r.get(key)
	switch v := f.Value.(type) {
	case []any:
		return v
	case map[string]any:
		var out []any
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = append(out, map[string]any{name: v[name]})
		}
		return out
	}
	var out []any
	for _, name := range f.words {
		out = append(out, name)
	}
	if ok && len(out) == 0 && f.Value != nil && f.text != "" {
		r.say(Warning, key, key+" names no server; it does not count", "write a list of names, or an object")
	}
	return out
}

// rest keeps the fields that Drover does not use.
func (r *reader) rest() {
	var unknown []string
	for _, f := range r.fields {
		if slices.Contains(r.used, f.Name) {
			continue
		}
		f.Known = slices.Contains(keys(), f.Name)
		r.e.Rest = append(r.e.Rest, f.Key)
		meant := alike(f.Name)
		switch {
		case f.Known:
		case meant != "":
			r.say(Warning, f.Name, fmt.Sprintf("key %.40q is not known, and has no effect", f.Name),
				"write "+meant+" if that is meant")
		default:
			unknown = append(unknown, f.Name)
		}
	}
	if len(unknown) > 0 {
		r.say(Note, unknown[0], "keys that are not known here, without effect: "+listed(unknown), "")
	}
}

// alike is the key that somebody may have meant who spelled it as elsewhere, or
// empty.
func alike(key string) string {
	bare := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
	}
	if bare(key) == "allowedtools" {
		return "tools"
	}
	i := slices.IndexFunc(keys(), func(k string) bool { return bare(k) == bare(key) })
	if i < 0 {
		return ""
	}
	return keys()[i]
}
