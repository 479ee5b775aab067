package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/platform/spelling"
	"github.com/drover-dev/drover/internal/platform/untrusted"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/skill"
)

// Bounds of a search.
const (
	MaxCommands = 1000 // in all places together
	maxEntries  = 5000 // files and folders of one place
	maxDepth    = 8    // of folders in a place
)

// Catalog is the commands that were found. It never changes.
type Catalog struct {
	commands []Command // by name, those that can be called first
	notes    []definitions.Note
}

// Find reads the commands of all places, of the program and of the skills.
func Find(places []definitions.Place, skills skill.Catalog) Catalog {
	c := Catalog{commands: builtIn()}
	for _, p := range places {
		c.place(p)
	}
	for _, s := range slices.Concat(skills.All(), skills.Hidden()) {
		c.commands = append(c.commands, Command{Skill: s, Sort: Skill, Template: Parse(s.Body)})
	}
	for i := range c.commands {
		c.commands[i].wait()
	}
	slices.SortStableFunc(c.commands, func(a, b Command) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.rank(), b.rank()))
	})
	first := 0
	for i := range c.commands {
		one := &c.commands[i]
		switch {
		case one.NoUser:
		case c.commands[first].Name == one.Name && first != i && !c.commands[first].NoUser:
			one.Shadowed = c.commands[first].source()
		default:
			first = i
		}
	}
	return c
}

// Current reads the commands of places as they are now, with the trust in the project. It
// checks the trust again after the read, so that it covers the files that were read.
func Current(places func(trusted bool) []definitions.Place, skills skill.Catalog, trusted func() bool) Catalog {
	before := trusted()
	found := Find(places(before), skills)
	if before && !trusted() {
		found = Find(places(false), skills)
	}
	return found
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
		c.note(at, "commands of this folder cannot be read: %v", err)
		return
	}
	defer func() { _ = root.Close() }()
	files, err := Files(root, p.Dir, endOf(p))
	if err != nil {
		c.note(at, "not all commands of this folder are read: %v", err)
	}
	for _, file := range files {
		if len(c.commands) >= MaxCommands {
			c.note(at, "only the first %d commands are loaded", MaxCommands)
			return
		}
		c.file(root, p, file)
	}
}

// endOf is how the names of the files of commands end.
func endOf(p definitions.Place) string {
	if strings.HasSuffix(p.Dir, "prompts") {
		return ".prompt.md"
	}
	return ".md"
}

// Files are the files of commands below a folder, as paths below root. Folders that are
// links are not entered.
func Files(root *os.Root, dir, end string) ([]string, error) {
	var out []string
	count := 0
	err := fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if count++; err == nil && count > maxEntries {
			err = fmt.Errorf("it has more than %d files", maxEntries)
		}
		below := strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && below != "" && dir != name ||
			strings.Count(below, "/") >= maxDepth):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(d.Name(), end) && !strings.HasPrefix(d.Name(), "."):
			out = append(out, name)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return out, err
}

func (c *Catalog) file(root *os.Root, p definitions.Place, name string) {
	at := filepath.Join(p.Root, name)
	data, err := untrusted.Read(root, name, maxFile)
	if err != nil {
		c.note(at, "the command is not loaded: %v", err)
		return
	}
	one, err := Read(data)
	if err != nil {
		c.note(at, "the command is not loaded: %v", err)
		return
	}
	below := strings.TrimPrefix(strings.TrimPrefix(name, path.Clean(p.Dir)), "/")
	if strings.EqualFold(path.Base(below), "README.md") && !strings.HasPrefix(string(data), "---") {
		return // about the commands
	}
	one.Name = NameOf(below)
	if one.Name == "" {
		c.note(at, "the command is not loaded: its name has no letters and no digits")
		return
	}
	one.Level, one.Trusted, one.Path = p.Level, p.Trusted, at
	if p.Level == definitions.Plugin {
		one.Name, one.Root = NameOf(filepath.Base(p.Root))+":"+one.Name, p.Root
	}
	c.commands = append(c.commands, one)
	for _, w := range one.Warnings {
		c.note(at, "%s", w)
	}
}

// All returns the commands in the order of their names, those that are shadowed or
// cannot be called by a user included.
func (c Catalog) All() []Command { return slices.Clone(c.commands) }

// Callable returns those that a user can call by their names.
func (c Catalog) Callable() []Command {
	return slices.DeleteFunc(c.All(), func(one Command) bool { return one.Shadowed != "" || one.NoUser })
}

// Warnings returns the faults of files, including files that were not loaded.
func (c Catalog) Warnings() []definitions.Note { return slices.Clone(c.notes) }

// UnknownError says that no command has a name.
type UnknownError struct {
	Name string
	Near []string // names that may be meant
}

func (e *UnknownError) Error() string {
	fix := "see `drover commands`, or begin the prompt with another word to send it as text"
	if len(e.Near) > 0 {
		fix = "did you mean /" + strings.Join(e.Near, ", /") + "? To send it as text, begin with another word"
	}
	return fmt.Sprintf("there is no command /%s (%s)", e.Name, fix)
}

// Find returns the command that a name means: the whole name, or its end after a
// colon where one command alone has that.
func (c Catalog) Find(name string) (Command, error) {
	all := c.Callable()
	for _, one := range all {
		if strings.EqualFold(one.Name, name) {
			return one, nil
		}
	}
	var ends []Command
	for _, one := range all {
		if strings.HasSuffix(strings.ToLower(one.Name), ":"+strings.ToLower(name)) {
			ends = append(ends, one)
		}
	}
	switch len(ends) {
	case 0:
		return Command{}, &UnknownError{name, near(all, name)}
	case 1:
		return ends[0], nil
	}
	names := make([]string, len(ends))
	for i, one := range ends {
		names[i] = one.Name
	}
	return Command{}, fmt.Errorf("several commands end in /%s (write the whole name: /%s)", name,
		strings.Join(names, ", /"))
}

// near returns up to three names that an unknown name may mean.
func near(all []Command, name string) []string {
	const most = 3
	type found struct {
		name string
		away int
	}
	var out []found
	name = strings.ToLower(name)
	limit := max(min(len(name)/2, 2), len(name)/3)
	for _, one := range all {
		full := strings.ToLower(one.Name)
		_, last := splitLast(full)
		away := min(spelling.Distance(name, full), spelling.Distance(name, last))
		begins := len(name) >= 3 && (strings.HasPrefix(full, name) || strings.HasPrefix(last, name))
		if away <= limit || begins {
			out = append(out, found{one.Name, away})
		}
	}
	slices.SortStableFunc(out, func(a, b found) int { return cmp.Compare(a.away, b.away) })
	var names []string
	for _, f := range out[:min(len(out), most)] {
		names = append(names, f.name)
	}
	return names
}

func splitLast(name string) (before, last string) {
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}
