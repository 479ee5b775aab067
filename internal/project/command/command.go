package command

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/drover-dev/drover/internal/platform/frontmatter"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/skill"
)

// Sort is the origin of a command.
type Sort string

// The sorts.
const (
	Prompt  Sort = "prompt"  // a text that becomes the prompt
	Skill   Sort = "skill"   // a skill, loaded for this prompt
	Program Sort = "program" // the program answers it, or changes something
)

// Command is one whole command: of a skill, of a file or of the program.
// Name is without the slash, and sets folders apart by colons. Path and Dir are empty for
// commands of the program; relative paths begin in Dir, or in the folder of the agent.
type Command struct {
	skill.Skill
	Sort Sort
	Root string // of the plugin that it belongs to; empty: to none

	Only  []string // rules that cover every call while its prompt is worked on; nil: all calls may be made
	Model string   // that it wants
	Agent string   // the type of agent that is to do the work; empty: the agent that is asked

	Template Template

	Shadowed string   // the owner of its name; empty: the command can be called by its name
	Waits    []string // the parts without effect until its folder is trusted
}

// rank orders commands of one name: the lowest wins. What waits for trust takes no
// name from anything else.
func (c Command) rank() int {
	switch {
	case c.Sort == Program:
		return 0
	case c.Level == definitions.Project && c.Trusted:
		return 1
	case c.Level == definitions.User:
		return 2
	case c.Level == definitions.Plugin:
		return 3
	case c.Level == definitions.BuiltIn:
		return 4
	}
	return 5
}

// source returns the origin of a command for listings and errors.
func (c Command) source() string {
	if c.Path != "" {
		return c.Path
	}
	return "the " + string(c.Level) + " /" + c.Name
}

// maxFile is how many bytes a file may have.
const maxFile = 256 << 10

// Read makes a command of the text of a file. Its name, level and trust are not set.
func Read(data []byte) (Command, error) {
	if len(data) > maxFile {
		return Command{}, fmt.Errorf("it has %d bytes, more than %d", len(data), maxFile)
	}
	d, err := frontmatter.Parse(data, frontmatter.CommandKeys())
	if err != nil {
		return Command{}, err
	}
	c := Command{Skill: skill.Read(d), Sort: Prompt, Model: d.Text("model"), Agent: agentOf(d)}
	c.Template = Parse(c.Body)
	c.NoModel = c.NoModel || strings.EqualFold(d.Text("hide-from-slash-command-tool"), "true")
	if len(d.List("tools")) > 0 {
		c.Warn(d, "tools", "tools has no effect: the rules of the session say what the agent may use")
	}
	if n := len(c.Template.Inclusions(Values{})); n > MaxInclusions {
		c.Warn(d, "", "it includes %d shell lines and files, more than %d, and cannot be used", n, MaxInclusions)
	}
	for _, name := range []string{"${file}", "${selection}", "${selectedText}", "${fileBasename}", "${lineNumber}"} {
		if strings.Contains(d.Body, name) {
			c.Warn(d, "", "%s stands for what an editor shows, and stays as it is", name)
		}
	}
	if c.Description == "" {
		c.Description = firstLine(d.Body)
	}
	return c, nil
}

// agentOf is the type of agent that is to do the work. The modes of editors are none.
func agentOf(d frontmatter.Document) string {
	name := cmp.Or(d.Text("agent"), d.Text("mode"))
	switch strings.ToLower(name) {
	case "agent", "ask", "edit", "plan":
		name = ""
	}
	if name == "" && d.Text("context") == "fork" {
		return "general-purpose"
	}
	return name
}

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
	for word := range strings.SplitSeq(path.Clean(file), "/") {
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

// wait notes the parts that have no effect until the folder is trusted.
func (c *Command) wait() {
	if c.Trusted {
		return
	}
	c.Waits = Effects(*c)
	c.Allow, c.Model = nil, ""
}

// Effects returns the effects of a command other than its text.
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
