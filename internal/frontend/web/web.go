// Package web serves a page that shows all sessions of the user and steers them.
//
// It owns the page, its access keys and one board. The board follows the live sessions and keeps the page as pieces
// of HTML, each with the number of its last change. Every open page gets the pieces that changed since its own
// number, over one stream of server-sent events. The package promises that a request of another site or without a key
// changes and reveals nothing, and that foreign text is shown as text. It reads and changes sessions through
// [control.API] only.
package web

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/platform/httpserve"
	"github.com/drover-dev/drover/task"
)

// Session is one session of the user.
type Session interface {
	Info() control.Info
	// Open connects to a live session, or reads the files of an ended one. The function releases it.
	Open(ctx context.Context) (control.API, func(), error)
}

// Config configures a [Server]. All fields except Workers and Hosts are required.
type Config struct {
	// Sessions returns the sessions of all projects, or the live ones, newest first.
	Sessions func(ctx context.Context, live bool) ([]Session, error)
	// MarkSeen records in the files of an ended session that the user has seen how tasks ended.
	MarkSeen func(ctx context.Context, of control.Info, ids []task.ID) error
	// Todos returns the to-do lists of all projects, newest change first. The named list, or the first, has its
	// to-dos.
	Todos func(ctx context.Context, name string) ([]TodoList, error)
	// Used yields the calls of models of all sessions since a time, in any order. An error says what is missing.
	Used func(ctx context.Context, since time.Time, yield func(Call)) error
	// Checks runs the checks of the doctor, which change nothing.
	Checks func(ctx context.Context) []Check
	// Workers returns the workers of the hub; nil: none are configured.
	Workers func(ctx context.Context) ([]fleetwire.Worker, error)
	Now     func() time.Time
	Token   string   // gives access to everything
	Devices Devices  // that are paired with the token
	Hosts   []string // names of the server in requests, besides this machine
	Version string
}

const mostBody = 2 << 20 // bytes of a request

// Server serves the page at one address.
type Server struct {
	Config
	listener net.Listener
	access   access
	board    *board
	views    views
	codes    codes
	used     used
	streams  chan struct{} // a place for each open stream
}

// New returns a server of the page at l.
func New(c Config, l net.Listener) (*Server, error) {
	v, err := newViews()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	a := access{c.Token, "drover_read_" + port, c.Devices, c.Hosts}
	return &Server{Config: c, listener: l, access: a, board: newBoard(c, v), views: v,
		codes: codes{open: map[string]pairing{}}, streams: make(chan struct{}, mostStreams)}, nil
}

// Link returns the path of a link that pairs one browser, once, within 10 minutes.
func (s *Server) Link(write bool) string { return linkPath(s.codes.add(write, s.Now())) }

// Serve answers until ctx ends, and closes the listener.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var board sync.WaitGroup
	board.Go(func() { s.board.run(ctx) })
	err := httpserve.Serve(ctx, s.listener, s.handler(), cancel)
	board.Wait()
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}
