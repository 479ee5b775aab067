package remoteserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// drain is how long answers under way may take when the server ends. Polls that
// are held back end at once.
const drain = 2 * time.Second

// Listen opens a port of this machine, such as 127.0.0.1:0. What is said there is
// not encrypted: others reach it by something that encrypts, in front.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen at %.100q: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf(
			"listen at %.100q: it is no address of this machine only (use 127.0.0.1, behind a proxy with TLS)",
			address,
		)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// Serve answers on l until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	requests, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          log.New(io.Discard, "", 0),
	} // what a client is told is in its answer
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with Close or Shutdown below
	select {
	case err := <-served:
		_ = srv.Close()
		return fmt.Errorf("serve remote sessions: %w", err)
	case <-ctx.Done():
	}
	cancel(errors.New("the server is closing"))
	last, done := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer done()
	if srv.Shutdown(last) != nil {
		_ = srv.Close()
	}
	<-served //nolint:errcheck // it says that the server was closed
	return nil
}
