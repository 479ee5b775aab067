// Package machines has the commands for work on other machines: the hub, and workers that take
// tasks from it.
package machines

import (
	"context"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// Outside is what these commands need beyond the console.
type Outside interface {
	// ServeHub makes this process a hub. It returns only if it fails.
	ServeHub(o Hub) error
	// Invite makes a line by which a worker, or sessions of another machine, join the user's hub.
	Invite(ctx context.Context, o Invitation) (string, error)
	// HubStatus returns the state of the hub that sessions of this folder use.
	HubStatus(ctx context.Context) (HubStatus, error)
	// Work takes tasks of sessions until ctx ends, or until it has drained.
	Work(ctx context.Context, o Worker) error
	// Workers returns the workers that the hub knows.
	Workers(ctx context.Context) ([]fleetwire.Worker, error)
	// Drain makes a worker take nothing new and end after its tasks.
	Drain(ctx context.Context, worker string) error
}

// app is what these commands share.
type app struct {
	console.Console
	Outside
}

// Commands returns the commands of this package.
func Commands(c console.Console, out Outside) []console.Command {
	a := &app{c, out}
	return []console.Command{
		{Name: "hub", Short: "Let other machines do tasks: the place where sessions and workers meet", Make: a.hub},
		{Name: "worker", Short: "Take tasks of sessions on other machines, and do them here or over ssh", Make: a.worker},
		{Name: "workers", Short: "List the workers of the hub, and what each does", Make: a.workers},
		{Name: "drain", Short: "Let a worker take nothing new, and end after its tasks", Make: a.drain},
	}
}
