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
	"github.com/drover-dev/drover/internal/project/definitions"
)

// Bounds of skills and their files.
const (
	MaxSkills = 500       // in all places together
	maxFile   = 256 << 10 // bytes of a SKILL.md
	maxAllow  = 100       // rules of one skill or command
)

// Skill is one skill, whole.
type Skill struct {
	Name        string   // by which it is called: the name of its folder, in lower-case kebab
	Display     string   // as its author writes it
	Description string   // whole; for whoever chooses a skill
	Allow       []string // permission rules that it asks for; nil: none
	Hint        string   // which arguments it takes
	NoUser      bool     // no prompt can call it by /name
	NoModel     bool     // only a user may call it
	Body        string
	Path        string // of its file, absolute
	Dir         string // its folder, absolute
	Level       definitions.Level
	Trusted     bool // Allow counts
	Warnings    []frontmatter.Warning
}

// Warn adds a warning about a key of the front matter, or about the file for an empty key.
func (s *Skill) Warn(d frontmatter.Document, key, format string, args ...any) {
	f, _ := d.Get(key)
	s.Warnings = append(s.Warnings, frontmatter.Warning{Line: f.Line, Text: fmt.Sprintf(format, args...)})
}

// Read takes from a document what skills and commands have in common. Names, places and trust
// are not set.
func Read(d frontmatter.Document) Skill {
	s := Skill{Description: strings.TrimSpace(d.Text("description")), Hint: strings.TrimSpace(d.Text("argument-hint")),
		Allow: d.List("allowed-tools"), Body: excerpt.Inert(strings.TrimSpace(d.Body)), Warnings: d.Warnings}
	if words := d.List("argument-hint"); s.Hint == "" && len(words) > 0 {
		s.Hint = "[" + strings.Join(words, ", ") + "]" // [a] is a list to YAML
	}
	is := func(key, value string) bool { return strings.EqualFold(d.Text(key), value) }
	s.NoUser = is("user-invocable", "false") || is("user-invokable", "false")
	s.NoModel = is("disable-model-invocation", "true")
	if s.Body == "" {
		s.Warn(d, "", "there is nothing behind the front matter")
	}
	if len(s.Allow) > maxAllow {
		s.Warn(d, "allowed-tools", "only the first %d of %d rules count", maxAllow, len(s.Allow))
		s.Allow = s.Allow[:maxAllow]
	}
	if len(s.Allow) == 0 {
		s.Allow = nil
	}
	return s
}

// Find reads the skills of all places, the first of which wins.
func Find(places []definitions.Place) Catalog {
	var c Catalog
	for _, p := range places {
		c.place(p)
	}
	slices.SortFunc(c.skills, func(a, b Skill) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

func (c *Catalog) note(path, format string, args ...any) {
	c.notes = append(c.notes, definitions.Note{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (c *Catalog) place(p definitions.Place) {
	at := p.Path()
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

func (c *Catalog) add(root *os.Root, p definitions.Place, dir, name string) {
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
	s := Read(d)
	s.Name, s.Display = Normalize(folder), d.Text("name")
	if s.Name == "" {
		return Skill{}, errors.New("the name of its folder has no letters and no digits")
	}
	switch {
	case !d.Found:
		s.Warn(d, "", "there is no front matter, so nobody knows what the skill is for")
	case s.Description == "":
		s.Warn(d, "description", "there is no description, so nobody knows what the skill is for")
	}
	if n := utf8.RuneCountInString(s.Description); n > 1024 {
		s.Warn(d, "description", "the description has %d characters, more than 1024", n)
	}
	switch {
	case s.Display == "":
		s.Display = folder
		if d.Found {
			s.Warn(d, "", "there is no name; that of the folder, %.64q, is taken", folder)
		}
	case s.Display != folder:
		s.Warn(d, "name", "the name %.64q is not that of the folder, %.64q, which counts", s.Display, folder)
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
