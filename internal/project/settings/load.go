package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Settings is the options of a user in a folder, and what else their sources have.
type Settings struct {
	options.Options

	Foreign     []string   // rules that were written for another program
	RuleSources []Source   // of the rules; the first source of a rule counts
	Dirs        []string   // further folders that tools may use, absolute
	HookSources []HookFile // in the order in which they were read
	Trusted     bool       // the user trusts the folder of the project
	Saved       Saved      // by the set-up page

	// Of another program, in a trusted project.
	Env            map[string]string // of commands and hooks
	PluginSwitches map[string]bool   // plugins by name: whether they are read
}

// Source is the rules of one source.
type Source struct {
	Name             string // a file, or --settings
	Allow, Ask, Deny []string
}

// HookFile is the hooks of one source, also those that may not run.
type HookFile struct {
	Path    string          // of the file, or --settings
	Data    json.RawMessage // an object of event names, or a whole file of HookDir
	Trusted bool            // they may run
	User    bool            // they are the user's own
}

// Note is something that was ignored or brought into its bounds, for the user.
type Note struct {
	Source    string // file, variable or flag
	Text      string
	Untrusted bool // it was ignored since the folder is not trusted
}

func (n Note) String() string { return n.Source + ": " + n.Text }

// Sources is where settings come from. Empty ones are passed over, and so are
// files that do not exist, except Flag.
type Sources struct {
	User    string // file of the user
	Project string // file of the project, shared
	Local   string // file of the project, of this checkout
	Flag    string // a file, or JSON that begins with {
	Saved   string // file of the set-up page
	Env     func(string) string

	// Settings of another program. Hooks and what forbids are taken of them, and of those
	// of a trusted project also the rules that allow and the other settings.
	UserForeign    []string // the user's
	ProjectForeign []string // the project's
	HookDir        string   // a folder of the project with files of hooks in the form of Copilot

	// Trusted says that the user trusts the folder of the project with the
	// files as they are. Then they may set everything except where models
	// are reached and the mode that asks for nothing.
	Trusted bool
}

// Find names the usual files for a folder.
func Find(env func(string) string, folder, flag string) Sources {
	s := Sources{Flag: flag, Env: env,
		Project: filepath.Join(folder, ".drover", "settings.json"),
		Local:   filepath.Join(folder, ".drover", "settings.local.json"),

		ProjectForeign: []string{
			filepath.Join(folder, ".claude", "settings.json"), filepath.Join(folder, ".claude", "settings.local.json"),
		},
		HookDir: filepath.Join(folder, ".github", "hooks"),
	}
	if dir := env("HOME"); filepath.IsAbs(dir) {
		s.UserForeign = []string{filepath.Join(dir, ".claude", "settings.json")}
	}
	if dir := home.Config(env); dir != "" {
		s.User = filepath.Join(dir, "settings.json")
	}
	return s
}

// Load reads the sources. The flag wins over the environment, and that over the
// files of a project that is trusted, and those over the file of the user, and
// that over the defaults; rules and hooks of all add up. The files of a project
// that is not trusted add rules to ask and to deny, and nothing else. All files
// that cannot be read are named in the error; then the settings are not to be
// used.
func Load(src Sources) (Settings, []Note, error) {
	l := loader{declared: options.Declared(), set: Settings{Options: options.Default()}}
	l.set.Trusted = src.Trusted
	if src.Env != nil {
		l.home = src.Env("HOME")
	}

	of := untrusted
	if src.Trusted {
		of = project
	}
	for _, path := range src.UserForeign {
		l.foreign(path, own)
	}
	l.file(src.User, own)
	for _, path := range src.ProjectForeign {
		l.foreign(path, of)
	}
	l.hookDir(src.HookDir, src.Trusted)
	l.file(src.Project, of)
	l.file(src.Local, of)
	if src.Env != nil {
		l.env(src.Env)
		l.models(src.Env)
	}
	if inline := strings.TrimSpace(src.Flag); strings.HasPrefix(inline, "{") {
		l.layer("--settings", []byte(inline), own)
	} else if src.Flag != "" {
		l.flagFile(src.Flag)
	}
	l.saved(src.Saved, src.Env)
	if len(l.errs) > 0 {
		return Settings{}, l.notes, errors.Join(l.errs...)
	}
	return l.set, l.notes, nil
}

type loader struct {
	declared []options.Setting
	set      Settings
	home     string // of the user; empty: not known
	notes    []Note
	errs     []error
}

func (l *loader) note(source, format string, args ...any) {
	l.notes = append(l.notes, Note{Source: source, Text: fmt.Sprintf(format, args...)})
}
