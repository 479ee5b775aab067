package a2aserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/httpserve"
)

const codeRequest = a2a.CodeRequest

// reasons are the words of section 5.4 for the errors of the protocol, which its error details name.
func reasons() map[int]string {
	return map[int]string{
		a2a.CodeTaskNotFound: "TASK_NOT_FOUND", a2a.CodeNotCancelable: "TASK_NOT_CANCELABLE",
		a2a.CodeNoPush: "PUSH_NOTIFICATION_NOT_SUPPORTED", a2a.CodeUnsupported: "UNSUPPORTED_OPERATION",
		a2a.CodeContentType: "CONTENT_TYPE_NOT_SUPPORTED", a2a.CodeVersion: "VERSION_NOT_SUPPORTED",
	}
}

// refusal is an error that the client is told of.
func refusal(code int, format string, words ...any) *a2a.Error {
	e := &a2a.Error{Code: code, Message: fmt.Sprintf(format, words...)}
	if reason := reasons()[code]; reason != "" {
		e.Data = json.RawMessage(`[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + reason +
			`","domain":"a2a-protocol.org"}]`)
	}
	return e
}

// asError is any error as the client is told of it.
func asError(err error) *a2a.Error {
	var own *a2a.Error
	var e *control.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &e) && (e.Code == control.Invalid || e.Code == control.TooLarge):
		return refusal(a2a.CodeParams, "%s", e.Error())
	case errors.As(err, &e) && e.Code == control.Conflict:
		return refusal(a2a.CodeUnsupported, "%s", e.Error())
	}
	return refusal(a2a.CodeInternal, "%s", err.Error())
}

// request is a call of JSON-RPC 2.0.
type request struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// answer is the answer to one: Result or Error is set.
type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *a2a.Error      `json:"error,omitempty"`
}

func refuse(w http.ResponseWriter, status int, id json.RawMessage, e *a2a.Error) {
	httpserve.JSON(w, status, answer{Version: "2.0", ID: idOf(id), Error: e})
}

// idOf is the ID of an answer: that of the request, or null.
func idOf(id json.RawMessage) json.RawMessage {
	id = bytes.TrimSpace(id)
	if len(id) == 0 || len(id) > 1000 || !bytes.ContainsRune([]byte(`"-0123456789`), rune(id[0])) {
		return json.RawMessage("null")
	}
	return id
}

// Handler routes requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+a2a.CardPath, func(w http.ResponseWriter, _ *http.Request) {
		httpserve.JSON(w, http.StatusOK, s.publicCard())
	})
	mux.HandleFunc("GET /agents/{agent}"+a2a.CardPath, s.agentCard)
	mux.HandleFunc("POST "+rpcPath, s.call)
	mux.HandleFunc("POST /agents/{agent}"+rpcPath, s.call)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, nil, refusal(codeRequest, "no such address (the agent card is at %s)", a2a.CardPath))
	})
	return s.guard(mux)
}

// locked refuses who has no token.
func (s *Server) locked(w http.ResponseWriter, r *http.Request) bool {
	if s.admitted(r) {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="drover"`)
	refuse(w, http.StatusUnauthorized, nil, refusal(codeRequest, "the token is missing or wrong (send Authorization: Bearer TOKEN)"))
	return true
}

// caller is who a request comes from and what it is about.
type caller struct {
	w     http.ResponseWriter
	r     *http.Request
	agent string
	id    json.RawMessage
}

// call answers one request of JSON-RPC.
func (s *Server) call(w http.ResponseWriter, r *http.Request) {
	if s.locked(w, r) {
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, nil,
			refusal(a2a.CodeContentType, "the body is %.60q and not application/json", kind))
		return
	}
	data, err := io.ReadAll(r.Body)
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		refuse(w, http.StatusRequestEntityTooLarge, nil,
			refusal(codeRequest, "the request is larger than %d bytes", mostBody))
		return
	} else if err != nil {
		return // the client has gone
	}
	var q request
	if err := json.Unmarshal(data, &q); err != nil {
		code := a2a.CodeParse
		if json.Valid(data) {
			code = codeRequest
		}
		refuse(w, http.StatusOK, nil, refusal(code, "this is no request of JSON-RPC: %v", err))
		return
	}
	if q.Version != "2.0" || q.Method == "" {
		refuse(w, http.StatusOK, q.ID, refusal(codeRequest, "this is no request of JSON-RPC 2.0 with a method"))
		return
	}
	if v := cmp.Or(r.Header.Get(a2a.VersionHeader), r.URL.Query().Get(a2a.VersionHeader), "0.3"); v != a2a.Version {
		refuse(w, http.StatusOK, q.ID, refusal(a2a.CodeVersion,
			"version %.20q of the protocol is not served (send the header %s: %s)", v, a2a.VersionHeader, a2a.Version))
		return
	}
	c := caller{w: w, r: r, agent: cmp.Or(r.PathValue("agent"), s.cfg.Usual), id: idOf(q.ID)}
	if _, err := s.agent(r.Context(), c.agent); err != nil {
		refuse(w, http.StatusOK, c.id, asError(err))
		return
	}
	httpserve.KeepOpen(w)
	s.dispatch(c, q)
}

func (s *Server) dispatch(c caller, q request) {
	ctx := c.r.Context()
	var out any
	var err error
	switch q.Method {
	case a2a.SendMessage:
		out, err = with(q, func(p a2a.SendRequest) (any, error) { return s.send(ctx, c.agent, p) })
	case a2a.SendStreamingMessage:
		_, err = with(q, func(p a2a.SendRequest) (any, error) { return nil, s.sendStream(c, p) })
	case a2a.SubscribeToTask:
		_, err = with(q, func(p a2a.TaskRequest) (any, error) { return nil, s.subscribe(c, p) })
	case a2a.GetTask:
		out, err = with(q, func(p a2a.TaskRequest) (any, error) { return s.get(ctx, c.agent, p) })
	case a2a.ListTasks:
		out, err = with(q, func(p a2a.ListRequest) (any, error) { return s.list(ctx, c.agent, p) })
	case a2a.CancelTask:
		out, err = with(q, func(p a2a.TaskRequest) (any, error) { return s.cancel(ctx, c.agent, p) })
	case a2a.CreatePushConfig:
		out, err = with(q, func(p a2a.PushConfig) (any, error) { return s.createPush(c.agent, p) })
	case a2a.GetPushConfig:
		out, err = with(q, func(p a2a.PushRequest) (any, error) { return s.getPush(c.agent, p) })
	case a2a.ListPushConfigs:
		out, err = with(q, func(p a2a.PushRequest) (any, error) { return s.listPush(c.agent, p) })
	case a2a.DeletePushConfig:
		out, err = with(q, func(p a2a.PushRequest) (any, error) { return struct{}{}, s.deletePush(c.agent, p) })
	case a2a.GetExtendedCard:
		out, err = s.extendedCard(ctx, c.agent)
	default:
		err = refusal(a2a.CodeMethod, "the method %.60q is not known%s", q.Method, older(q.Method))
	}
	switch {
	case errors.Is(err, errStreamed):
	case err != nil:
		refuse(c.w, http.StatusOK, c.id, asError(err))
	default:
		httpserve.JSON(c.w, http.StatusOK, answer{Version: "2.0", ID: c.id, Result: out})
	}
}

// older explains a method of an earlier version.
func older(method string) string {
	if strings.Contains(method, "/") {
		return " in version " + a2a.Version + " (message/send of version 0.3 is SendMessage)"
	}
	return ""
}

// errStreamed says that the answer was written already.
var errStreamed = errors.New("the answer is a stream")

// with reads the parameters of a method. Unknown fields are ignored, as section 5.7 wants it.
func with[P any](q request, do func(P) (any, error)) (any, error) {
	var p P
	if raw := bytes.TrimSpace(q.Params); len(raw) > 0 {
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, refusal(a2a.CodeParams, "the parameters of %s cannot be read: %v", q.Method, err)
		}
	}
	return do(p)
}

// agent finds an agent that is offered.
func (s *Server) agent(ctx context.Context, name string) (Agent, error) {
	all, err := s.cfg.Agents(ctx)
	if err != nil {
		return Agent{}, err
	}
	for _, a := range all {
		if a.Name == name {
			return a, nil
		}
	}
	return Agent{}, refusal(codeRequest, "no agent %.80q is offered", name)
}
