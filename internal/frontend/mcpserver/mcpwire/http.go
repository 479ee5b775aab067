package mcpwire

import (
	"bytes"
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
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where a server answers.
const Path = "/mcp"

const (
	stateless    = "2026-07-28" // from this revision on, there are no sessions
	metaVersion  = "io.modelcontextprotocol/protocolVersion"
	codeHeader   = -32020 // a header does not say what the message says
	mostSessions = 100
	mostRequests = 512 // under way at once
	mostEvents   = 16 << 20

	sessionIdle  = 12 * time.Hour // without a request; its tasks end with it
	writeTime    = 30 * time.Second
	headerTime   = 10 * time.Second
	bodyTime     = time.Minute
	keepTime     = 2 * time.Minute
	drainTime    = 5 * time.Second
	mostHeader   = 64 << 10
	sessionField = "Mcp-Session-Id"
	versionField = "Mcp-Protocol-Version"
	nameField    = "Mcp-Name"
)

// HTTP says how a server is reached over streamable HTTP.
type HTTP struct {
	Server *mcp.Server
	Host   string       // of the address that it listens at, which requests may name; if it is no single address, all
	Token  string       // that requests must bear; empty: none
	Left   func(string) // is called before the session with this ID ends, if it is not nil
}

// Handler answers at [Path]: clients of revision 2026-07-28 without sessions, older ones in
// a session each.
func (c HTTP) Handler() http.Handler {
	server := func(*http.Request) *mcp.Server { return c.Server }
	events := mcp.NewMemoryEventStore(nil)
	events.SetMaxBytes(mostEvents)
	h := &httpHandler{
		HTTP: c, places: make(chan struct{}, mostRequests),
		sessions: mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
			SessionTimeout: sessionIdle, MaxRequestBodyBytes: MostBytes, EventStore: events,
		}),
		stateless: mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
			Stateless: true, MaxRequestBodyBytes: MostBytes, PropagateRequestCancellation: true,
		}),
	}
	mux := http.NewServeMux()
	mux.Handle(Path, h)
	return mux
}

type httpHandler struct {
	HTTP
	places              chan struct{}
	sessions, stateless http.Handler
}

func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if why := h.foreign(r); why != "" {
		refuse(w, http.StatusForbidden, nil, jsonrpc.CodeInvalidRequest, why)
		return
	}
	if !h.known(r) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="drover"`)
		refuse(w, http.StatusUnauthorized, nil, jsonrpc.CodeInvalidRequest,
			"the request has no valid token (send the header Authorization: Bearer TOKEN)")
		return
	}
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	default:
		busy(w, "too many requests at once")
		return
	}
	w = &timedWriter{w, http.NewResponseController(w)}
	session := r.Header.Get(sessionField)
	if r.Method != http.MethodPost {
		h.lasts(w)
		if r.Method == http.MethodDelete && session != "" && h.Left != nil {
			h.Left(session)
		}
		h.sessions.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MostBytes))
	if err != nil {
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			refuse(w, http.StatusRequestEntityTooLarge, nil, jsonrpc.CodeParseError,
				fmt.Sprintf("a message is longer than %d bytes and was not read", MostBytes))
			return
		}
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeParseError, "the message was not read to its end")
		return
	}
	h.lasts(w)
	body = bytes.TrimSpace(body)
	msgs, batch, refusal := Decode(body)
	if refusal != nil {
		reply(w, http.StatusBadRequest, refusal)
		return
	}
	to := h.sessions
	if !batch {
		req, _ := msgs[0].(*jsonrpc.Request)
		if req != nil && (r.Header.Get(versionField) >= stateless || versionOf(req) != "") {
			to = h.stateless
			if refusal := mismatch(r.Header, req); refusal != nil {
				reply(w, http.StatusBadRequest, refusal)
				return
			}
		}
		if Carry(msgs[0]) {
			if changed, err := jsonrpc.EncodeMessage(msgs[0]); err == nil {
				body = changed
			}
		}
	}
	if to == h.sessions && session == "" && h.full() {
		busy(w, "too many sessions")
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	to.ServeHTTP(w, r)
}

// lasts lifts the limit on the time to send a request, which has arrived: at the end of
// that time the server would take the client for gone.
func (h *httpHandler) lasts(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not every connection has deadlines
}

// full reports whether there is no room for another session.
func (h *httpHandler) full() bool {
	n := 0
	for s := range h.Server.Sessions() {
		if s.ID() != "" {
			n++
		}
	}
	return n >= mostSessions
}

// foreign says why a request comes from a page of another site, or was sent here by a
// name that somebody else owns; "": neither.
func (h *httpHandler) foreign(r *http.Request) string {
	if !h.ours(r.Host) {
		return fmt.Sprintf("the host %.100q is not this server", r.Host)
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !h.local(u.Host) && u.Host != r.Host {
			return fmt.Sprintf("the origin %.100q is not this server", origin)
		}
	}
	return ""
}

// ours reports whether a host, with or without a port, is this machine or the address
// that the server listens at.
func (h *httpHandler) ours(host string) bool {
	own := net.ParseIP(h.Host)
	return h.local(host) || own != nil && own.IsUnspecified()
}

func (h *httpHandler) local(hostport string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if host == "" {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback() || strings.EqualFold(host, h.Host)
}

// known reports whether the request bears the token.
func (h *httpHandler) known(r *http.Request) bool {
	if h.Token == "" {
		return true
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(h.Token))
	return strings.EqualFold(kind, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

type taskParams struct {
	Meta   map[string]json.RawMessage `json:"_meta"`
	TaskID string                     `json:"taskId"`
}

func paramsOf(req *jsonrpc.Request) (p taskParams) {
	_ = json.Unmarshal(req.Params, &p) // what is missing counts as not said
	return p
}

// versionOf is the revision that a message itself names.
func versionOf(req *jsonrpc.Request) (v string) {
	_ = json.Unmarshal(paramsOf(req).Meta[metaVersion], &v)
	return v
}

// mismatch refuses a message about a task whose header names another task, or none. The
// protocol library compares the headers of the methods that it knows.
func mismatch(header http.Header, req *jsonrpc.Request) []byte {
	switch req.Method {
	case "tasks/get", "tasks/update", "tasks/cancel":
	default:
		return nil
	}
	id := paramsOf(req).TaskID
	if header.Get(nameField) == id {
		return nil
	}
	raw, err := json.Marshal(req.ID.Raw())
	if err != nil {
		raw = nil
	}
	return Refusal(raw, codeHeader, fmt.Sprintf("the header %s is %.100q and the task is %.100q (they must be equal)",
		nameField, header.Get(nameField), id))
}

func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, nil, jsonrpc.CodeInternalError, why+" (try again later)")
}

func refuse(w http.ResponseWriter, status int, id json.RawMessage, code int64, message string) {
	reply(w, status, Refusal(id, code, message))
}

func reply(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that has gone needs no answer
}

// timedWriter gives each write a time of its own, so that streams may last and clients
// that do not read may not.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timedWriter) Write(data []byte) (int, error) {
	w.renew()
	return w.ResponseWriter.Write(data)
}

func (w *timedWriter) Flush() {
	w.renew() // what is written before the first flush may be the header of a connection used before
	_ = w.control.Flush()
}

func (w *timedWriter) renew() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTime)) // not every connection has deadlines
}

// Serve answers on l until ctx ends, and closes it. end is called then, before the
// requests under way are waited for: it must make them end.
func Serve(ctx context.Context, l net.Listener, h http.Handler, end func()) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: keepTime, MaxHeaderBytes: mostHeader,
		ErrorLog: log.New(io.Discard, "", 0), // what a client is told is in its answer
	}
	var failed error
	served := make(chan struct{})
	go func() { // ends with Shutdown or Close below
		defer close(served)
		failed = srv.Serve(l)
	}()
	var err error
	select {
	case <-served:
		err = fmt.Errorf("serve mcp over http: %w", failed)
	case <-ctx.Done():
	}
	end()
	last, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer done()
	if srv.Shutdown(last) != nil {
		_ = srv.Close()
	}
	<-served
	return err
}

// CloseSessions ends all sessions of a server, and returns when they have ended.
func CloseSessions(m *mcp.Server) {
	for s := range m.Sessions() {
		_ = s.Close() // its client has gone, or is told so
	}
}
