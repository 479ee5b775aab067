package assemble

import (
	"context"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/catalog"
)

// AgentServer is the server of agents that the settings name; its URL is empty if
// they name none. env is of the user.
func AgentServer(c Config) catalog.Server {
	set := c.Settings.Agents.Catalog
	server := catalog.Server{URL: set.URL, Cache: c.Root.AgentCache()}
	if set.TokenEnv != "" {
		server.Token = home.Lookup(c.Env)(set.TokenEnv)
	}
	return server
}

// remoteAgents gives the catalog the definitions of a server: its last answer at
// once, so that no session waits for it, and its present answer when it
// comes. Without an earlier answer the session waits for the first one.
func (s *Session) remoteAgents(files *catalog.Files, c Config, tell func(string, ...any)) {
	server := AgentServer(c)
	if server.URL == "" {
		return
	}
	fetch := func(ctx context.Context) {
		got, err := catalog.Fetch(ctx, server)
		if ctx.Err() != nil {
			return
		}
		for _, wrong := range []error{err, got.Stale} {
			if wrong != nil {
				tell("%s", wrong)
			}
		}
		if got.Data != nil {
			files.Replace(got.Data)
		}
	}
	old := server.Cached()
	if c.Played {
		if old != nil {
			files.Replace(old)
		}
		return
	}
	if old == nil {
		fetch(context.Background())
		return
	}
	files.Replace(old)
	ctx, cancel := context.WithCancel(context.Background())
	s.unfetch = cancel
	s.fetches.Go(func() { fetch(ctx) })
}
