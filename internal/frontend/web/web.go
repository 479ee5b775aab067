// Package web serves a page that shows all sessions of the user and steers them.
//
// It is a frontend like the others: it reads and writes through [control.API] only. One board
// follows the live sessions and holds what the page shows as pieces of HTML, each with the number of
// its last change; every open page reads the pieces that changed since the number that it has, over
// one stream of server-sent events.
package web

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Session is one session of the user.
type Session interface {
	Info() control.Info
	// Open connects to a live session, or reads what an ended one left. The function lets go of it.
	Open(ctx context.Context) (control.API, func(), error)
}

// Config is what the page needs.
type Config struct {
	// Sessions returns the sessions of all projects, newest first; with live only the live ones.
	Sessions func(ctx context.Context, live bool) ([]Session, error)
	// MarkSeen records in what an ended session left that the user knows how tasks ended.
	MarkSeen func(ctx context.Context, of control.Info, ids []task.ID) error
	// Todos returns the to-do lists of all projects, the one that was changed last first. The named one, else the
	// first, has its to-dos.
	Todos func(ctx context.Context, name string) ([]TodoList, error)
	// Used yields the calls of models since a time, of all sessions, in any order. An error says what is missing.
	Used func(ctx context.Context, since time.Time, yield func(Call)) error
	// Checks looks at what Drover needs, and changes nothing.
	Checks func(ctx context.Context) []Check
	// Workers are those of the hub; nil: there is no such list.
	Workers func(ctx context.Context) ([]Worker, error)
	Now     func() time.Time
	Token   string   // who has it may read and write
	Hosts   []string // by which requests may name the server, beside this machine
	Version string
}

const (
	headerTime = 10 * time.Second
	bodyTime   = time.Minute
	keepTime   = 2 * time.Minute
	writeTime  = 30 * time.Second // for each piece of an answer
	drainTime  = 5 * time.Second
	mostHeader = 64 << 10
	mostBody   = 2 << 20
)

// Server serves the page at one address.
type Server struct {
	Config
	listener net.Listener
	access   access
	board    *board
	views    views
	codes    codes
	used     used
	ended    context.Context // ends with the server, and with it every stream

	streams chan struct{} // a place for each open stream
}

// New returns the server of the page at l.
func New(c Config, l net.Listener) (*Server, error) {
	v, err := newViews()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	return &Server{Config: c, listener: l, access: newAccess(c.Token, port, c.Hosts), board: newBoard(c, v), views: v,
		codes: codes{open: map[string]pairing{}}, streams: make(chan struct{}, mostStreams)}, nil
}

// Link is the path of a link that pairs one browser with the page, once, within ten minutes.
func (s *Server) Link(write bool) string { return linkPath(s.codes.add(write, s.Now())) }

// Serve answers until ctx ends, and closes the listener.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	s.ended = ctx
	srv := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: keepTime,
		MaxHeaderBytes: mostHeader, ErrorLog: log.New(io.Discard, "", 0), // what a client is told is in its answer
	}
	followed := make(chan struct{})
	go func() { // ends with ctx
		defer close(followed)
		s.board.run(ctx)
	}()
	var failed error
	served := make(chan struct{})
	go func() { // ends with Shutdown or Close below
		defer close(served)
		failed = srv.Serve(s.listener)
	}()
	var err error
	select {
	case <-served:
		err = fmt.Errorf("serve the page: %w", failed)
	case <-ctx.Done():
	}
	cancel()
	last, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer done()
	if srv.Shutdown(last) != nil {
		_ = srv.Close()
	}
	<-served
	<-followed
	return err
}
