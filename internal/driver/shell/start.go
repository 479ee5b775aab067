package shell

import (
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/drover-dev/drover/internal/engine/process"
)

// starter starts commands and keeps what they share. It remembers where bash was found: most commands
// are lines for it, and a PATH has many folders. As in a terminal, a bash that is installed later
// serves later hosts.
type starter struct {
	bash atomic.Pointer[found]
	null func() (*os.File, error)
}

// found is where a search has ended.
type found struct{ search, path string }

func newStarter() *starter {
	return &starter{null: sync.OnceValues(process.OpenNull)}
}

func (s *starter) start(c process.Command) (*process.Group, error) {
	c.Null, _ = s.null() // each start without it tries again, and reports the error
	if c.Args[0] != "bash" {
		return process.StartGroup(c)
	}
	search := ""
	for _, kv := range slices.Backward(c.Env) {
		if strings.HasPrefix(kv, "PATH=") {
			search = kv
			break
		}
	}
	if f := s.bash.Load(); f != nil && f.search == search {
		c.Path = f.path
		if g, err := process.StartGroup(c); err == nil {
			return g, nil
		}
		c.Path = "" // it may have moved; otherwise the error comes again
	}
	path, err := c.Find()
	if err == nil && strings.HasPrefix(path, "/") { // otherwise it depends on the folder
		s.bash.Store(&found{search, path})
		c.Path = path
	}
	return process.StartGroup(c)
}
