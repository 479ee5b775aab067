package modelwire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent"
)

const (
	maxErrorBody = 64 << 10
	maxErrorText = 400 // bytes of the provider's own words that are shown
)

// BadFormat is an answer that breaks the rules of the wire.
type BadFormat struct{ Text string }

func (e *BadFormat) Error() string { return e.Text }

// Useless is an answer that cannot be used, and that a retry would repeat.
type Useless struct{ Text string }

func (e *Useless) Error() string { return e.Text }

// retry is a failure that is worth another try.
type retry struct {
	why   *agent.ModelError
	after time.Duration // by the provider's word; 0: it gave none
	most  int           // tries in all
	wrong bool          // an answer came, and breaks the rules: it may always do so
}

func (r *retry) Error() string { return r.why.Text }
func (r *retry) Unwrap() error { return r.why }

// exhausted returns the error after the last try.
func (r *retry) exhausted(tries int) error {
	last := *r.why
	last.Text = fmt.Sprintf("%s, after %d tries", last.Text, tries)
	if fix := ruleOf(last.Kind).fix; fix != "" {
		last.Text += " (" + fix + ")"
	}
	return &last
}

// again returns the error after an answer was wrong twice in the same way.
func (r *retry) again(urlVar string) error {
	last := *r.why
	last.Text = fmt.Sprintf("%s, twice in the same way (check that %s leads to a server of this API)", last.Text, urlVar)
	return &last
}

// Refusal is the provider's own account of a failure.
type Refusal struct {
	Type    string
	Code    string // a word, or a status where the provider puts one there
	Message string
	Param   string // the field of the request that it is about

	ResetsAt float64 // seconds since 1970 at which a usage limit is reset; 0: unknown
	ResetsIn float64 // seconds until then; 0: unknown
}

// ParseRefusal reads the forms of errors that are met: {"error":{…}},
// {"error":"text"}, {"message":…}, {"detail":…}, {"detail":[{"loc":[…],"msg":…}]},
// and the first in a list of them. ok is false for anything else.
func ParseRefusal(body []byte) (r *Refusal, ok bool) {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var in struct {
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &in) != nil {
		return nil, false
	}
	for _, raw := range []json.RawMessage{in.Error, in.Detail, body} {
		if r = refusal(raw); r.Type != "" || r.Message != "" || r.Code != "" {
			return r, true
		}
	}
	return nil, false
}

// refusal returns an empty refusal unless raw is text or an object with the right fields.
func refusal(raw json.RawMessage) *Refusal {
	r := &Refusal{}
	if json.Unmarshal(raw, &r.Message) == nil {
		return r
	}
	var faults []struct {
		Loc []json.RawMessage
		Msg string
	}
	if json.Unmarshal(raw, &faults) == nil && len(faults) > 0 {
		at := make([]string, len(faults[0].Loc))
		for i, part := range faults[0].Loc {
			at[i] = word(part)
		}
		r.Param, r.Message = strings.Join(at, "."), faults[0].Msg
		return r
	}
	var in struct {
		Type, Code, Message, Param json.RawMessage
		ResetsAt                   json.RawMessage `json:"resets_at"`
		ResetsIn                   json.RawMessage `json:"resets_in_seconds"`
	}
	if json.Unmarshal(raw, &in) != nil {
		return r
	}
	r.Type, r.Code, r.Message, r.Param = word(in.Type), word(in.Code), word(in.Message), word(in.Param)
	r.ResetsAt, _ = strconv.ParseFloat(word(in.ResetsAt), 64) // 0 without a number
	r.ResetsIn, _ = strconv.ParseFloat(word(in.ResetsIn), 64)
	return r
}

// word returns a string, or a number as one; "" for anything else.
func word(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

func (e *Refusal) Error() string {
	for _, text := range []string{e.Message, e.Code, e.Type} {
		if text = oneLine(text); text != "" {
			if e.Param != "" && !strings.Contains(text, e.Param) {
				text += " (" + oneLine(e.Param) + ")"
			}
			return text
		}
	}
	return "no reason given"
}

// status returns the status of the response, unless the refusal names a worse one:
// in a stream the status of the response was good.
func (e *Refusal) status(response int) int {
	if n, err := strconv.Atoi(e.Code); err == nil && response < 400 && n >= 400 && n < 600 {
		return n
	}
	return response
}

// kind classifies a failure by its status, or by its words if it comes in a stream.
// Words win over the status: providers disagree about the status.
func (e *Refusal) kind(status int) string {
	text := strings.ToLower(e.Message)
	is := func(words ...string) bool {
		for _, w := range words {
			if e.Type == w || e.Code == w {
				return true
			}
		}
		return false
	}
	says := func(phrases ...string) bool {
		for _, p := range phrases {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case status == http.StatusPaymentRequired, is("billing_error", "insufficient_quota", "billing_hard_limit_reached",
		"billing_not_active"),
		says("credit balance", "insufficient credits", "exceeded your current quota"):
		return "account"
	case status == http.StatusUnauthorized, is("authentication_error", "invalid_api_key"):
		return "auth"
	case status == http.StatusForbidden, is("permission_error"):
		return "auth"
	case status == http.StatusTooManyRequests, is("rate_limit_error", "rate_limit_exceeded", "usage_limit_reached"):
		return "rate_limit"
	case status == http.StatusRequestEntityTooLarge, is("request_too_large", "context_length_exceeded",
		"exceed_context_size_error"),
		says("prompt is too long", "exceed context limit", "maximum context length", "context window", "context size",
			"context length",
			"maximum prompt length", "input is too long"):
		return "context_overflow"
	case status == http.StatusNotFound, is("not_found_error", "model_not_found"):
		return "unknown_model"
	case status == 529, is("overloaded_error", "server_is_overloaded", "slow_down"):
		return "overloaded"
	case is("invalid_prompt"):
		return "bad_request"
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly,
		is("api_error", "timeout_error", "server_error", "internal_error"):
		return "server_error"
	}
	if status < 400 && !is("invalid_request_error", "invalid_request", "BadRequestError", "bad_request") {
		return "server_error" // the request was taken, and failed in the middle of its answer
	}
	return "bad_request"
}

// refuse makes an error of every response that is not an event stream. It closes
// the body, and reads maxErrorBody of it at most: a compressed answer may be
// very much larger than it looks.
func (e *Endpoint) refuse(res *http.Response, model string) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a part of it is better than nothing
	_ = res.Body.Close()
	told, ok := ParseRefusal(body)
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		where := "elsewhere"
		if u, err := url.Parse(res.Header.Get("Location")); err == nil && u.Host != "" {
			where = "to " + u.Host
		}
		return &agent.ModelError{Status: res.StatusCode, Kind: "bad_answer",
			Text: fmt.Sprintf("%s redirects %s, where the key is not sent (set %s to the right address)", e.Host, where,
				e.URLVar)}
	case res.StatusCode < 300:
		return e.badAnswer(res, len(body), "no event stream")
	case !ok:
		told = &Refusal{Message: fmt.Sprintf("%s of %s", typeOf(res), sizeText(len(body)))}
	}
	return e.failure(res.StatusCode, told, res.Header, model)
}

// failure returns the error for a failure that the provider reports.
func (e *Endpoint) failure(status int, r *Refusal, h http.Header, model string) error {
	kind := r.kind(status)
	tell := func(format string, args ...any) *agent.ModelError {
		text := fmt.Sprintf(format, args...)
		for _, name := range []string{"Request-Id", "X-Request-Id"} {
			if id := h.Get(name); id != "" {
				text += " [request " + oneLine(id) + "]"
				break
			}
		}
		return &agent.ModelError{Status: status, Kind: kind, Text: text}
	}
	switch kind {
	case "account":
		return tell("the model provider's account cannot pay: %s (see the provider's billing page)", r)
	case "auth":
		return tell("%s refused the key: %s (set %s to one that may use %s)", e.Host, r, e.KeyVar, model)
	case "unknown_model":
		return tell("%s knows no model %s: %s (choose another with --model, or check %s)", e.Host, model, r, e.URLVar)
	case "context_overflow":
		return tell("the conversation is too long for %s: %s", model, r)
	case "rate_limit", "overloaded", "server_error":
		why := tell("%s answered %s: %s", e.Host, statusText(status, kind), r)
		if until := resetAt(h, r, time.Now()); kind == "rate_limit" && !until.IsZero() {
			why.Kind, why.Until = "usage_limit", until
			why.Text += fmt.Sprintf(" (the limit is reset at %s)", until.Local().Format("2006-01-02 15:04"))
			return why
		}
		if h.Get("X-Should-Retry") == "false" {
			return why
		}
		return &retry{why: why, after: retryAfter(h, time.Now()), most: ruleOf(kind).tries}
	}
	if status == http.StatusProxyAuthRequired {
		kind = "proxy"
		return tell("the proxy before %s asks for a password (set HTTPS_PROXY with one)", e.Host)
	}
	why := tell("%s refused the request (%d): %s", e.Host, status, r)
	if status < 400 {
		why = tell("%s refused the request in its stream: %s", e.Host, r)
	}
	if strings.Contains(r.Message, "support tool") {
		why.Text += " (choose a model that can call tools: an agent works by them)"
	}
	if why.At = r.spot(); why.At != (agent.Spot{}) {
		why.At.Why = r.Error()
	}
	return why
}

func statusText(status int, kind string) string {
	if status < 400 {
		return kind + " in its stream"
	}
	return fmt.Sprintf("%d (%s)", status, kind)
}

// callError returns the error for a call without a usable answer. ctx is the
// caller's context, call the context that the watch can end.
func (e *Endpoint) callError(ctx, call context.Context, model string, err error) error {
	var told *agent.ModelError
	if errors.As(err, &told) {
		return err // one of refuse's, or a retry around it
	}
	if ctx.Err() != nil {
		return fmt.Errorf("ask model %s: %w", model, context.Cause(ctx))
	}
	if call.Err() != nil {
		return e.broken(context.Cause(call))
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the address is in our text
	}
	told = &agent.ModelError{Err: err}
	text := oneLine(err.Error())
	switch told.Kind = notReached(err); told.Kind {
	case "tls":
		told.Text = fmt.Sprintf("the certificate or the encryption of %s cannot be used: %s (check %s and the clock; name "+
			"your own authority in SSL_CERT_FILE)", e.Host, text, e.URLVar)
	case "bad_answer":
		told.Text = fmt.Sprintf("%s does not answer as a model provider: %s (check %s)", e.Host, text, e.URLVar)
	case "unreachable":
		told.Text = fmt.Sprintf("%s cannot be reached: %s (check the network, %s and HTTPS_PROXY)", e.Host, text, e.URLVar)
	case "proxy":
		told.Text = fmt.Sprintf("the proxy before %s refuses: %s (check HTTPS_PROXY)", e.Host, text)
	default:
		return e.broken(err)
	}
	if most := ruleOf(told.Kind).tries; most > 1 {
		return &retry{why: told, most: most}
	}
	return told
}

// notReached classifies the failure of a call without the head of an answer.
func notReached(err error) (kind string) {
	var op *net.OpError
	var tlsRecord tls.RecordHeaderError
	var alert tls.AlertError
	var certificate *tls.CertificateVerificationError
	text := err.Error()
	switch {
	case errors.As(err, &certificate), errors.As(err, &tlsRecord), errors.As(err, &alert), strings.Contains(text, "tls: "),
		strings.Contains(text, "HTTP response to HTTPS client"):
		return "tls"
	case strings.Contains(text, "malformed HTTP"), strings.Contains(text, "unsupported protocol scheme"):
		return "bad_answer" // net/http has no types for these
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"),
		strings.Contains(text, "TLS handshake timeout"):
		return "unreachable" // nothing was sent
	case strings.HasPrefix(text, "Proxy "):
		return "proxy"
	}
	return "cut"
}

// broken returns the retry of a call whose answer was cut or did not arrive. The call
// may be billed twice: the work cannot continue without its answer.
func (e *Endpoint) broken(err error) *retry {
	told := &agent.ModelError{Kind: "cut", Err: err}
	var system syscall.Errno
	switch {
	case errors.Is(err, errIdle):
		told.Kind = "idle"
		told.Text = fmt.Sprintf("%s went silent: %s", e.Host, oneLine(err.Error()))
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		told.Text = fmt.Sprintf("the connection to %s was broken: connection reset", e.Host)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		told.Text = fmt.Sprintf("the answer of %s was cut off: it ended too early", e.Host)
	case errors.As(err, &system):
		told.Text = fmt.Sprintf("the connection to %s was broken: %s", e.Host, system.Error())
	case strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)"): // net/http has no error of its own for it
		told.Text = fmt.Sprintf("the connection to %s was broken: the server sent something that is no HTTP response to a "+
			"request (check %s)", e.Host, e.URLVar)
	default:
		told.Text = fmt.Sprintf("the answer of %s was cut off or damaged: %s", e.Host, oneLine(err.Error()))
	}
	return &retry{why: told, most: ruleOf(told.Kind).tries}
}

func (e *Endpoint) badAnswer(res *http.Response, size int, why string) error {
	if size == 0 {
		why = "empty"
	}
	return &agent.ModelError{Status: res.StatusCode, Kind: "bad_answer",
		Text: fmt.Sprintf("%s gave no model's answer: %s of %s: %s (check %s)", e.Host, typeOf(res), sizeText(size),
			oneLine(why), e.URLVar)}
}

func typeOf(res *http.Response) string {
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || media == "" {
		return "something without a content type"
	}
	return media
}

func sizeText(n int) string {
	if n >= maxErrorBody {
		return fmt.Sprintf("%d KiB or more", maxErrorBody>>10)
	}
	return strconv.Itoa(n) + " bytes"
}

// retryAfter returns the pause that the provider demands; 0 without a sensible
// one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return seconds(ms / 1000)
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 0 {
		return seconds(s)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// seconds returns s as a duration; an hour for a number that is too large for one.
func seconds(s float64) time.Duration {
	if !(s < 3600) {
		return time.Hour
	}
	return time.Duration(s * float64(time.Second))
}

// oneLine makes the words of others fit for an error of one line.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText], "") + "…"
	}
	return s
}

// spot is the part of the request that a refusal names, such as messages.2.content.0.image,
// input[3] or tools.1.custom.input_schema. Messages are counted as the provider has them.
func (e *Refusal) spot() agent.Spot {
	for _, text := range []string{e.Param, e.Message} {
		for _, path := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n'\"`,;()", r) }) {
			if at := spotOf(path); at != (agent.Spot{}) {
				return at
			}
		}
	}
	text := strings.ToLower(e.Message)
	return agent.Spot{File: slices.ContainsFunc([]string{"image", "pdf", "document"}, func(kind string) bool {
		return strings.Contains(text, kind)
	})}
}

// spotOf reads one path.
func spotOf(path string) (at agent.Spot) {
	words := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]:", r) })
	number := func(i int) int {
		if i >= len(words) {
			return 0
		}
		n, err := strconv.Atoi(words[i])
		if err != nil || n < 0 || n > 1<<30 {
			return 0
		}
		return n + 1
	}
	list := slices.IndexFunc(words, func(w string) bool { return w == "messages" || w == "input" || w == "tools" })
	switch {
	case list < 0 || number(list+1) == 0:
		return at
	case words[list] == "tools":
		return agent.Spot{Tool: number(list + 1)}
	}
	at.Message = number(list + 1)
	for i := list + 2; i < len(words); i++ {
		switch {
		case words[i] != "content" && words[i] != "output":
		case at.Block == 0:
			at.Block = number(i + 1)
		case at.Inner == 0:
			at.Inner = number(i + 1)
		}
	}
	return at
}
