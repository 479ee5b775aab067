package assemble

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/members"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
)

// maxJoin limits the file of a join line, in bytes.
const maxJoin = 4 << 10

// Hub is how a session or a command line of this user reaches its hub.
func Hub(root home.Root, set options.Workers, name string) (link.Options, error) {
	o := link.Options{Role: link.RoleSession, Name: name}
	switch {
	case link.IsCluster(set.Hub):
		o.Cluster, o.Creds = set.Hub, set.Creds
	case set.Hub != "":
		line, err := home.ReadFile(set.Hub, maxJoin)
		if err != nil {
			return o, fmt.Errorf("read the join line of the hub (workers.hub in the settings): %w", err)
		}
		if o.Join, err = link.ParseJoin(string(line)); err != nil {
			return o, err
		}
	default:
		join, err := link.Own(root, members.Dir(root))
		if err != nil {
			return o, err
		}
		o.Join = join
	}
	return o, nil
}

// hasHub reports whether sessions have a hub, by the settings or because the user runs one.
func hasHub(c Config) bool {
	if c.Settings.Workers.Hub != "" {
		return true
	}
	_, err := link.Own(c.Root, members.Dir(c.Root))
	return err == nil
}

// hubOf is how a session connects to the hub.
func hubOf(c Config) func(context.Context) (*link.Link, error) {
	return func(ctx context.Context) (*link.Link, error) {
		o, err := Hub(c.Root, c.Settings.Workers, string(c.Session))
		if err != nil {
			return nil, err
		}
		o.Again = func() (link.Join, error) {
			now, err := Hub(c.Root, c.Settings.Workers, string(c.Session))
			return now.Join, err
		}
		return link.Open(ctx, o)
	}
}
