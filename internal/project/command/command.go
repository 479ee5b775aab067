package command

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/frontmatter"
)

// Level is whose a command is.
type Level string

// The levels.
const (
	Project Level = "project"
	User    Level = "user"
	Plugin  Level = "plugin"
	BuiltIn Level = "built-in"
)

// Sort says what a command is made of.
type Sort string

// The sorts.
const (
	Prompt  Sort = "prompt"  // a text that becomes the prompt
	Skill   Sort = "skill"   // a skill, loaded for this prompt
	Program Sort = "program" // the program answers it, or changes something
)

// Command is one command, whole.
type Command struct {
	Name        string // by which it is called, without the slash; folders are set apart by colons
	Sort        Sort
	Description string
	Hint        string // which arguments it takes
	Level       Level
	Path        string // of its file; empty for those of the program
	Root        string // of the plugin that it belongs to; empty: to none
	Dir         string // where relative paths in it begin; empty: in the folder of the agent
	Trusted     bool   // what it includes and allows counts

	Allow []string // permission rules that hold while its prompt is worked on
	Only  []string // rules that cover every call then; nil: all calls may be made
	Model string   // that it wants
	Agent string   // the type of agent that is to do the work; empty: the one that is asked

	NoModel bool // only a user may call it
	NoUser  bool // only a model may

	Template Template
	Warnings []frontmatter.Warning

	Shadowed string   // what has its name; empty: it can be called by it
	Waits    []string // what of it has no effect until its folder is trusted
}

// rank orders commands of one name: the lowest wins. What waits for trust takes no
// name from anything else.
func (c Command) rank() int {
	switch {
	case c.Sort == Program:
		return 0
	case c.Level == Project && c.Trusted:
		return 1
	case c.Level == User:
		return 2
	case c.Level == Plugin:
		return 3
	case c.Level == BuiltIn:
		return 4
	}
	return 5
}

// source is what a listing and an error call a command by.
func (c Command) source() string {
	if c.Path != "" {
		return c.Path
	}
	return "the " + string(c.Level) + " /" + c.Name
}

// bounds of what one file may ask for.
const (
	maxFile  = 256 << 10 // bytes
	maxRules = 100
)

// Read makes a command of the text of a file. Its name, level and trust are not set.
func Read(data []byte) (Command, error) {
	if len(data) > maxFile {
		return Command{}, fmt.Errorf("it has %d bytes, more than %d", len(data), maxFile)
	}
	d, err := frontmatter.Parse(data, frontmatter.CommandKeys())
	if err != nil {
		return Command{}, err
	}
	c := Command{Sort: Prompt, Hint: hint(d), Model: d.Text("model"),
		Description: strings.TrimSpace(d.Text("description")),
		Allow:       d.List("allowed-tools"), Warnings: d.Warnings, Template: Parse(excerpt.Inert(strings.TrimSpace(d.Body)))}
	warn := func(key, format string, args ...any) {
		f, _ := d.Get(key)
		c.Warnings = append(c.Warnings, frontmatter.Warning{Line: f.Line, Text: fmt.Sprintf(format, args...)})
	}
	c.agent(d)
	c.NoModel = yes(d, "disable-model-invocation") || yes(d, "hide-from-slash-command-tool")
	c.NoUser = no(d, "user-invocable") || no(d, "user-invokable")
	if len(d.List("tools")) > 0 {
		warn("tools", "tools has no effect: the rules of the session say what the agent may use")
	}
	if len(c.Allow) > maxRules {
		warn("allowed-tools", "only the first %d of %d rules count", maxRules, len(c.Allow))
		c.Allow = c.Allow[:maxRules]
	}
	if len(c.Allow) == 0 {
		c.Allow = nil
	}
	if strings.TrimSpace(d.Body) == "" {
		warn("", "there is nothing behind the front matter")
	}
	if n := len(c.Template.Inclusions(Values{})); n > MaxInclusions {
		warn("", "it includes %d shell lines and files, more than %d, and cannot be used", n, MaxInclusions)
	}
	for _, name := range []string{"${file}", "${selection}", "${selectedText}", "${fileBasename}", "${lineNumber}"} {
		if strings.Contains(d.Body, name) {
			warn("", "%s stands for what an editor shows, and stays as it is", name)
		}
	}
	if c.Description == "" {
		c.Description = firstLine(d.Body)
	}
	return c, nil
}

// hint is the argument hint: [a] [b] is no YAML and [a] is a list, and both are text.
func hint(d frontmatter.Document) string {
	if text := strings.TrimSpace(d.Text("argument-hint")); text != "" {
		return text
	}
	if words := d.List("argument-hint"); len(words) > 0 {
		return "[" + strings.Join(words, ", ") + "]"
	}
	return ""
}

// agent reads which agent is to do the work. The modes of editors are none.
func (c *Command) agent(d frontmatter.Document) {
	name := d.Text("agent")
	for _, key := range []string{"mode"} {
		if name == "" {
			name = d.Text(key)
		}
	}
	forked := d.Text("context") == "fork"
	switch strings.ToLower(name) {
	case "", "agent", "ask", "edit", "plan":
		name = ""
	}
	if forked && name == "" {
		name = "general-purpose"
	}
	c.Agent = name
}

func yes(d frontmatter.Document, key string) bool { return strings.EqualFold(d.Text(key), "true") }

func no(d frontmatter.Document, key string) bool { return strings.EqualFold(d.Text(key), "false") }

// firstLine is the first line that says something: it describes a file that does not.
func firstLine(body string) string {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "#>-* ")); line != "" {
			return line
		}
	}
	return ""
}

// NameOf makes the name of a command from the path of its file below the folder of
// commands: folders are set apart by colons, and what cannot stand in a name is a hyphen.
func NameOf(file string) string {
	file = strings.TrimSuffix(strings.TrimSuffix(file, ".md"), ".prompt")
	var words []string
	for _, word := range strings.Split(path.Clean(file), "/") {
		word = strings.Trim(strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '.' || r == '-' {
				return r
			}
			return '-'
		}, word), "-.")
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, ":")
}

// wait notes what has no effect until the folder is trusted.
func (c *Command) wait() {
	if c.Trusted {
		return
	}
	c.Waits = Effects(*c)
	c.Allow, c.Model = nil, ""
}

// Effects are what a command would do beyond being text.
func Effects(c Command) []string {
	var out []string
	for _, line := range c.Template.ShellLines() {
		out = append(out, "runs when it is called: "+line)
	}
	for _, file := range c.Template.Files() {
		if strings.HasPrefix(file, "/") || strings.HasPrefix(file, "~") || slices.Contains(strings.Split(file, "/"), "..") {
			out = append(out, "includes when it is called: "+file)
		}
	}
	for _, rule := range c.Allow {
		out = append(out, fmt.Sprintf("allows %s without a question, while its prompt is worked on", rule))
	}
	if c.Model != "" {
		out = append(out, "wants the model "+c.Model)
	}
	return out
}

// Line is a command in a list.
type Line struct {
	Name          string   `json:"name"`
	Kind          string   `json:"kind"`
	Description   string   `json:"description"`
	ArgumentHint  string   `json:"argument_hint,omitempty"`
	Level         string   `json:"level"`
	Source        string   `json:"source,omitempty"`
	Model         string   `json:"model,omitempty"`
	Agent         string   `json:"agent,omitempty"`
	ShadowedBy    string   `json:"shadowed_by,omitempty"`
	WaitsForTrust []string `json:"waits_for_trust,omitempty"`
	NotForPeople  bool     `json:"not_for_people,omitempty"`
	NotForModels  bool     `json:"not_for_models,omitempty"`
	Warnings      []string `json:"warnings,omitempty"`
}

// Line is the command as a list shows it.
func (c Command) Line() Line {
	l := Line{Name: c.Name, Kind: string(c.Sort), Description: c.Description, ArgumentHint: c.Hint, Level: string(c.Level),
		Source: c.Path, Model: c.Model, Agent: c.Agent, ShadowedBy: c.Shadowed, WaitsForTrust: c.Waits,
		NotForPeople: c.NoUser, NotForModels: c.NoModel}
	for _, w := range c.Warnings {
		l.Warnings = append(l.Warnings, w.String())
	}
	return l
}
