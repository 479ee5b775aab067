package skill

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/frontmatter"
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

// Bounds of what is read.
const (
	MaxSkills = 500       // in all places together
	maxFile   = 256 << 10 // bytes of a SKILL.md
	maxAsked  = 100       // rules of one skill
)

// Level is whose a place is. The lower wins where two skills have one name.
type Level int

// The levels.
const (
	Project Level = iota
	User
	Plugin
)

func (l Level) String() string { return [...]string{"project", "user", "plugin"}[l] }

// Place is a folder that holds folders of skills.
type Place struct {
	Root    string // absolute; no link leads out of it
	Dir     string // below Root
	Level   Level
	Trusted bool // rules of its skills count
}

// Places are the usual ones, the first of which wins: those of the project, of
// the user, and of plugins, whose folders are given. trusted says whether the
// project is; what is the user's own is trusted, plugins included.
func Places(env func(string) string, folder string, trusted bool, plugins []string) []Place {
	var out []Place
	for _, dir := range []string{".drover/skills", ".claude/skills", ".github/skills"} {
		out = append(out, Place{Root: folder, Dir: dir, Level: Project, Trusted: trusted})
	}
	config, home := env("XDG_CONFIG_HOME"), env("HOME")
	if !filepath.IsAbs(config) && filepath.IsAbs(home) {
		config = filepath.Join(home, ".config")
	}
	if filepath.IsAbs(config) {
		out = append(out, Place{Root: filepath.Join(config, "drover", "skills"), Dir: ".", Level: User, Trusted: true})
	}
	if filepath.IsAbs(home) {
		out = append(out, Place{Root: filepath.Join(home, ".claude", "skills"), Dir: ".", Level: User, Trusted: true})
	}
	for _, p := range plugins {
		out = append(out, Place{Root: p, Dir: "skills", Level: Plugin, Trusted: true})
	}
	return out
}

// Skill is one skill, whole.
type Skill struct {
	Name         string   // by which it is called: that of its folder, in lower-case kebab
	Display      string   // as its author writes it
	Description  string   // whole; for whoever chooses a skill
	AllowedTools []string // permission rules that it asks for; nil: none
	Hint         string   // which arguments it takes
	NoUser       bool     // no prompt can call it by /name
	NoModel      bool     // its author wants it called by users only
	Body         string
	Path         string // of SKILL.md, absolute
	Dir          string // its folder, absolute
	Level        Level
	Trusted      bool // AllowedTools count
	Warnings     []frontmatter.Warning
}

// Note is something about a file that a user should know.
type Note struct {
	Path string
	Text string
}

func (n Note) String() string { return n.Path + ": " + n.Text }

// Find reads the skills of all places, the first of which wins.
func Find(places []Place) Catalog {
	var c Catalog
	for _, p := range places {
		c.place(p)
	}
	slices.SortFunc(c.skills, func(a, b Skill) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

func (c *Catalog) note(path, format string, args ...any) {
	c.notes = append(c.notes, Note{path, fmt.Sprintf(format, args...)})
}

func (c *Catalog) place(p Place) {
	at := filepath.Join(p.Root, p.Dir)
	root, err := os.OpenRoot(p.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.note(at, "skills of this folder cannot be read: %v", err)
		return
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.note(at, "skills of this folder cannot be read: %v", err)
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if len(c.skills) >= MaxSkills {
			c.note(at, "only the first %d skills are loaded", MaxSkills)
			return
		}
		c.add(root, p, filepath.Join(at, e.Name()), e.Name())
	}
}

func (c *Catalog) add(root *os.Root, p Place, dir, name string) {
	path := filepath.Join(dir, "SKILL.md")
	data, err := untrusted.Read(root, filepath.Join(p.Dir, name, "SKILL.md"), maxFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return // not a folder of a skill
	}
	if err != nil {
		c.note(path, "the skill is not loaded: %v", err)
		return
	}
	s, err := parse(name, data)
	if err != nil {
		c.note(path, "the skill is not loaded: %v", err)
		return
	}
	s.Path, s.Dir, s.Level, s.Trusted = path, dir, p.Level, p.Trusted
	if first, taken := c.Find(s.Name); taken {
		c.note(path, "the skill is hidden by that in %s", first.Dir)
		c.hidden = append(c.hidden, s)
		return
	}
	c.skills = append(c.skills, s)
	for _, w := range s.Warnings {
		c.note(path, "%s", w)
	}
}

// parse makes a skill of the text of a SKILL.md in a folder of that name.
func parse(folder string, data []byte) (Skill, error) {
	d, err := frontmatter.Parse(data, frontmatter.SkillKeys())
	if err != nil {
		return Skill{}, err
	}
	s := Skill{Name: Normalize(folder), Display: d.Text("name"), Description: strings.TrimSpace(d.Text("description")),
		AllowedTools: d.List("allowed-tools"), Body: excerpt.Inert(strings.TrimSpace(d.Body)), Warnings: d.Warnings}
	s.Hint = strings.TrimSpace(d.Text("argument-hint"))
	if words := d.List("argument-hint"); s.Hint == "" && len(words) > 0 {
		s.Hint = "[" + strings.Join(words, ", ") + "]"
	}
	s.NoUser = strings.EqualFold(d.Text("user-invocable"), "false") || strings.EqualFold(d.Text("user-invokable"), "false")
	s.NoModel = strings.EqualFold(d.Text("disable-model-invocation"), "true")
	if s.Name == "" {
		return Skill{}, errors.New("the name of its folder has no letters and no digits")
	}
	warn := func(key, format string, args ...any) {
		f, _ := d.Get(key)
		s.Warnings = append(s.Warnings, frontmatter.Warning{Line: f.Line, Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case !d.Found:
		warn("", "there is no front matter, so nobody knows what the skill is for")
	case s.Description == "":
		warn("description", "there is no description, so nobody knows what the skill is for")
	}
	if n := utf8.RuneCountInString(s.Description); n > 1024 {
		warn("description", "the description has %d characters, more than 1024", n)
	}
	switch {
	case s.Display == "":
		s.Display = folder
		if d.Found {
			warn("", "there is no name; that of the folder, %.64q, is taken", folder)
		}
	case s.Display != folder:
		warn("name", "the name %.64q is not that of the folder, %.64q, which counts", s.Display, folder)
	}
	if s.Body == "" {
		warn("", "there is nothing behind the front matter")
	}
	if len(s.AllowedTools) > maxAsked {
		warn("allowed-tools", "only the first %d of %d tools count", maxAsked, len(s.AllowedTools))
		s.AllowedTools = s.AllowedTools[:maxAsked]
	}
	if len(s.AllowedTools) == 0 {
		s.AllowedTools = nil
	}
	return s, nil
}

// Normalize makes a name that looks the same however it is written: lower-case
// letters and digits with single hyphens between. A prefix of a plugin, set
// apart by a colon, is cut off.
func Normalize(name string) string {
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name = name[i+1:]
	}
	words := strings.FieldsFunc(strings.ToLower(strings.TrimLeft(strings.TrimSpace(name), "/")), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-")
}
