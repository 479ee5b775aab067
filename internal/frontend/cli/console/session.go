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
	Answerable bool   // questions wait for somebody who watches; Ctrl-Z holds its commands
}

// Session is one session, live or not.
type Session interface {
	// Info tells what is known without opening it.
	Info() control.Info
	// Open connects to a live session, or reads what a dead one left. The
	// function lets go of it.
	// A live one whose host stands still is read too: it would not answer.
	Open(ctx context.Context) (control.API, func(), error)
	// Reach is Open for who waits until such a host goes on.
	Reach(ctx context.Context) (control.API, func(), error)
	// Wake lets such a host go on. done, with again, makes it stand still again.
	Wake() (done func(again bool), err error)
	// Gone waits until a host that takes nothing any more listens no more; false
	// says that it still does after a while.
	Gone(ctx context.Context) bool
}
