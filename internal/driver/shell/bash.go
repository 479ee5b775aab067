package shell

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/drover-dev/drover/internal/engine/process"
)

// bash starts commands and remembers where bash was found: most commands are lines for it, and a
// PATH has many folders. As in a terminal, a bash that is installed later serves later hosts.
type bash struct{ found atomic.Pointer[found] }

// found is where a search has ended.
type found struct{ search, path string }

func (b *bash) start(c process.Command) (*process.Group, error) {
	if len(c.Args) == 0 || c.Args[0] != "bash" {
		return process.StartGroup(c)
	}
	search := ""
	for _, kv := range slices.Backward(c.Env) {
		if strings.HasPrefix(kv, "PATH=") {
			search = kv
			break
		}
	}
	if f := b.found.Load(); f != nil && f.search == search {
		c.Path = f.path
		if g, err := process.StartGroup(c); err == nil {
			return g, nil
		}
		c.Path = "" // it may have moved; otherwise the error comes again
	}
	path, err := c.Find()
	if err == nil && strings.HasPrefix(path, "/") { // otherwise it depends on the folder
		b.found.Store(&found{search, path})
		c.Path = path
	}
	return process.StartGroup(c)
}
