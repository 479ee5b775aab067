package mcpwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/platform/httpserve"
)

// Path is where a server answers.
const Path = "/mcp"

const (
	stateless    = "2026-07-28" // the first revision without sessions
	metaVersion  = "io.modelcontextprotocol/protocolVersion"
	codeHeader   = -32020 // a header differs from the message
	mostSessions = 100
	mostRequests = 512 // at once
	mostEvents   = 16 << 20

	sessionIdle  = 12 * time.Hour // without a request; the tasks end with the session
	sessionField = "Mcp-Session-Id"
	versionField = "Mcp-Protocol-Version"
	nameField    = "Mcp-Name"
)

// HTTP configures a server over streamable HTTP.
type HTTP struct {
	Server *mcp.Server
	Host   string       // of the listening address; requests may name it, or any host if it is unspecified
	Token  string       // that requests must have; empty: none
	Left   func(string) // is called before the session with this ID ends, unless it is nil
}

// Handler answers at [Path]: clients of revision 2026-07-28 without sessions, older ones in a session each.
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
	if token, ok := httpserve.Bearer(r); h.Token != "" && !(ok && httpserve.Same(token, h.Token)) {
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
	w = httpserve.Timed(w)
	session := r.Header.Get(sessionField)
	if r.Method != http.MethodPost {
		httpserve.KeepOpen(w)
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
	httpserve.KeepOpen(w)
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

// full reports whether the limit of sessions is reached.
func (h *httpHandler) full() bool {
	n := 0
	for s := range h.Server.Sessions() {
		if s.ID() != "" {
			n++
		}
	}
	return n >= mostSessions
}

// foreign returns why a request is refused: it names another host, or a page of another machine has sent it; empty:
// neither.
func (h *httpHandler) foreign(r *http.Request) string {
	local := func(host string) bool { return httpserve.Local(host, strings.ToLower(h.Host)) }
	if own := net.ParseIP(h.Host); !local(r.Host) && !(own != nil && own.IsUnspecified()) {
		return fmt.Sprintf("the host %.100q is not this server", r.Host)
	}
	if origin := httpserve.ForeignOrigin(r, local); origin != "" {
		return "the origin " + origin + " is not this server"
	}
	return ""
}

type taskParams struct {
	Meta   map[string]json.RawMessage `json:"_meta"`
	TaskID string                     `json:"taskId"`
}

func paramsOf(req *jsonrpc.Request) (p taskParams) {
	_ = json.Unmarshal(req.Params, &p) // unreadable fields are empty
	return p
}

// versionOf is the revision in a message.
func versionOf(req *jsonrpc.Request) (v string) {
	_ = json.Unmarshal(paramsOf(req).Meta[metaVersion], &v)
	return v
}

// mismatch refuses a message about a task if its header names another task or none. The protocol library compares the
// headers of the methods that it knows.
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
	_, _ = w.Write(data) // fails only if the client has left
}

// CloseSessions ends all sessions of a server and returns when they have ended.
func CloseSessions(m *mcp.Server) {
	for s := range m.Sessions() {
		_ = s.Close() // fails only if the client has left
	}
}
