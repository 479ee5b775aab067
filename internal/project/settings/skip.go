package settings

import (
	"fmt"
	"strings"
)

// Skip says which levels of files are passed over. The zero Skip passes over none.
type Skip struct {
	User    bool // files of the user
	Project bool // files of the project that are shared
	Local   bool // files of this checkout
}

// ParseSources reads which levels of files count: user, project and local, with commas
// between. With an empty text no files count.
func ParseSources(text string) (Skip, error) {
	s := Skip{User: true, Project: true, Local: true}
	for word := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(word) {
		case "":
		case "user":
			s.User = false
		case "project":
			s.Project = false
		case "local":
			s.Local = false
		default:
			return Skip{}, fmt.Errorf("unknown source %.40q (known: user, project, local)", word)
		}
	}
	return s, nil
}

// Without leaves out the files of levels that are passed over.
func (s Sources) Without(skip Skip) Sources {
	if skip.User {
		s.User, s.UserForeign = "", nil
	}
	shared, own := s.ProjectForeign[:1], s.ProjectForeign[1:]
	if skip.Project {
		s.Project, s.HookDir, shared = "", "", nil
	}
	if skip.Local {
		s.Local, own = "", nil
	}
	s.ProjectForeign = append(append([]string{}, shared...), own...)
	return s
}

// Env is env without the folders of the user, where the user's files are passed over.
func (s Skip) Env(env func(string) string) func(string) string {
	if !s.User {
		return env
	}
	return func(name string) string {
		if name == "HOME" || name == "XDG_CONFIG_HOME" {
			return ""
		}
		return env(name)
	}
}
