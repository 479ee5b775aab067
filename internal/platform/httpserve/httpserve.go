// Package httpserve serves HTTP at one address of this machine, for programs and browsers of its user.
//
// It owns the server of a listener, the checks that every such server needs (which host a request names, which page
// sent it, and whether it has the token), and answers of JSON and server-sent events. It promises that nothing runs
// after [Serve] has returned. It has no routes, and does not decide which checks apply.
package httpserve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/addresses"
)

const (
	headerTime = 10 * time.Second
	bodyTime   = time.Minute
	writeTime  = 30 * time.Second // for each write
	keepTime   = 2 * time.Minute
	drainTime  = 5 * time.Second
	maxHeader  = 64 << 10
)

// Serve answers on l until ctx ends, and closes it. Then it calls end, cancels the contexts of open requests, and waits
// for them for at most 5 s. An error means that the listener failed.
func Serve(ctx context.Context, l net.Listener, h http.Handler, end func()) error {
	requests, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader,
		ErrorLog:    log.New(io.Discard, "", 0), // the answers have the errors
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with Shutdown or Close below
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	end()
	cancel(errors.New("the server is closing"))
	last, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer done()
	if srv.Shutdown(last) != nil {
		_ = srv.Close()
	}
	if err == nil {
		<-served //nolint:errcheck // it reports the shutdown
	}
	return err
}

// KeepOpen lifts the limit on the time of a request that has arrived. Without it the server takes the client of a
// long answer for gone.
func KeepOpen(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // some writers of tests have no deadlines
}

// Timed returns a writer that bounds each write, but not the whole answer: streams may last, and clients must read.
func Timed(w http.ResponseWriter) http.ResponseWriter {
	return &timed{w, http.NewResponseController(w)}
}

type timed struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w *timed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timed) Write(data []byte) (int, error) {
	w.renew()
	return w.ResponseWriter.Write(data)
}

func (w *timed) Flush() { _ = w.FlushError() } // for callers that look for an http.Flusher

func (w *timed) FlushError() error {
	w.renew() // the flush may write the header of a connection that was used before
	return w.control.Flush()
}

func (w *timed) renew() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime)) // some writers of tests have no deadlines
}

// Local reports whether a host, with or without a port, is this machine or one of hosts.
func Local(hostport string, hosts ...string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return addresses.Loopback(host) || host != "" && slices.Contains(hosts, host)
}

// ForeignOrigin returns the first origin of a request that is neither its host nor allowed; empty: none.
func ForeignOrigin(r *http.Request, allowed func(host string) bool) string {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host != r.Host && !allowed(u.Host) {
			return fmt.Sprintf("%.100q", origin)
		}
	}
	return ""
}

// Guard refuses requests that name another host than this machine or hosts, or come from the page of another site. A
// link that leads to a page may be on another site. The answers are neither kept nor read by other sites.
func Guard(hosts []string, next http.Handler, refuse func(w http.ResponseWriter, why string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		site := r.Header.Get("Sec-Fetch-Site")
		moves := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet // a link was clicked
		switch origin := ForeignOrigin(r, func(string) bool { return false }); {
		case !Local(r.Host, hosts...):
			refuse(w, fmt.Sprintf("the host %.100q is not this server (open the address that drover serve prints, or add --host)",
				r.Host))
		case origin != "":
			refuse(w, "the origin "+origin+" is not this server")
		case site != "" && site != "same-origin" && site != "none" && !moves:
			refuse(w, "the request comes from a page of another site")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// JSON answers with a value.
func JSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // a fault of this program
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // fails only if the client has left
}

// Events is a stream of server-sent events to one client, whose writes are bounded in time.
type Events struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// NewEvents begins a stream. The client gets the header with the first event or comment.
func NewEvents(w http.ResponseWriter) *Events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	KeepOpen(w)
	w = Timed(w)
	return &Events{w, http.NewResponseController(w)}
}

// Write writes encoded events.
func (e *Events) Write(data []byte) (int, error) {
	n, err := e.w.Write(data)
	if err == nil {
		err = e.out.Flush()
	}
	return n, err
}

// Comment keeps the connection alive.
func (e *Events) Comment() error {
	_, err := e.Write([]byte(":\n\n"))
	return err
}

// Send sends one event. Without an ID the client continues from the event before it; the name may be empty.
func (e *Events) Send(id, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	_, err = e.Write(fmt.Appendf(nil, "%s%sdata: %s\n\n", id, name, data))
	return err
}

// Same compares two secrets in constant time.
func Same(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Bearer returns the token of a request; ok is false if it has none.
func Bearer(r *http.Request) (token string, ok bool) {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(kind, "Bearer")
}
