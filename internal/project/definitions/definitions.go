// Package definitions lists the folders of definitions: of agents, skills and commands of a
// project, of the user and of plugins.
//
// It owns the order of the places, of which the first wins, and the trust in each. It reads no
// definition.
package definitions

import (
	"path/filepath"

	"github.com/drover-dev/drover/internal/platform/home"
)

// Level says whose a definition is.
type Level string

// The levels. Of two definitions with one name, the one whose level is named first here
// counts (H-21).
const (
	Given   Level = "given"   // for this session, as JSON
	Project Level = "project" // below the folder or its repository
	User    Level = "user"
	Plugin  Level = "plugin"
	Remote  Level = "remote" // of a server
	BuiltIn Level = "built-in"
)

// Place is a folder with definitions.
type Place struct {
	Root    string // absolute; no link leads out of it
	Dir     string // below Root
	Level   Level
	Trusted bool   // what its definitions would execute or allow, counts
	Only    string // the name of the one file that counts; empty: all
}

// Path is the absolute path of the folder.
func (p Place) Path() string { return filepath.Join(p.Root, p.Dir) }

// Note is something about a file that the user should know.
type Note struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

func (n Note) String() string { return n.Path + ": " + n.Text }

// Usual returns the places of one sort of definitions, such as skills: in the project, of
// the user, and of plugins, whose folders are given. trusted says whether the project is;
// the user's own places are trusted, plugins included.
func Usual(env func(string) string, folder string, trusted bool, plugins []string, sort string) []Place {
	out := append(InProject(folder, sort), OfUser(env, sort)...)
	for i := range out {
		out[i].Trusted = trusted || out[i].Level != Project
	}
	return append(out, OfPlugins(plugins, sort)...)
}

// InProject returns the places below the folder of a project, without trust.
func InProject(root, sort string) []Place {
	github := filepath.Join(".github", sort)
	if sort == "commands" {
		github = filepath.Join(".github", "prompts")
	}
	var out []Place
	for _, dir := range []string{filepath.Join(".drover", sort), filepath.Join(".claude", sort), github} {
		out = append(out, Place{Root: root, Dir: dir, Level: Project})
	}
	return out
}

// OfUser returns the places below the folders of the user's configuration.
func OfUser(env func(string) string, sort string) []Place {
	var out []Place
	if dir := home.Config(env); dir != "" {
		out = append(out, Place{Root: filepath.Join(dir, sort), Dir: ".", Level: User, Trusted: true})
	}
	if dir := env("HOME"); filepath.IsAbs(dir) {
		out = append(out, Place{Root: filepath.Join(dir, ".claude", sort), Dir: ".", Level: User, Trusted: true})
	}
	return out
}

// OfPlugins returns the places in the folders of plugins.
func OfPlugins(plugins []string, sort string) []Place {
	var out []Place
	for _, p := range plugins {
		out = append(out, Place{Root: p, Dir: sort, Level: Plugin, Trusted: true})
	}
	return out
}
