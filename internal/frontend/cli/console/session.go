package console

import (
	"context"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Opening is how a session of this process is opened.
type Opening struct {
	Session    task.ID // empty: a new one
	Title      string
	Settings   string // of the flag --settings
	Answerable bool   // questions wait for the user at the terminal; Ctrl-Z suspends its commands
}

// Session is one session, live or not.
type Session interface {
	// Info returns the facts that are known without opening the session.
	Info() control.Info
	// Open connects to a live session, or reads the files of a dead one or of one with a suspended
	// host, which would not answer. The function lets go of it.
	Open(ctx context.Context) (control.API, func(), error)
	// Reach is Open, but waits for a suspended host.
	Reach(ctx context.Context) (control.API, func(), error)
	// Wake continues a suspended host. done with again suspends it again.
	Wake() (done func(again bool), err error)
	// Gone waits until an ending host has stopped listening. It reports false if the host still
	// listens after some time.
	Gone(ctx context.Context) bool
}
