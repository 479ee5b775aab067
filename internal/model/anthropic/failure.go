package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
)

const (
	maxTries     = 10 // of a call that the provider refuses for now
	maxDials     = 3  // of a host that is not reached
	maxErrorBody = 64 << 10
	maxErrorText = 400 // bytes of the provider's own words that are shown
)

// retry is a failure that is worth another try.
type retry struct {
	why   *agent.ModelError
	after time.Duration // as the provider told; 0: it did not
	most  int           // tries in all
}

func (r *retry) Error() string { return r.why.Text }
func (r *retry) Unwrap() error { return r.why }

// exhausted is the end of trying.
func (r *retry) exhausted(tries int) error {
	last := *r.why
	if last.Kind != "unreachable" {
		last.Text = fmt.Sprintf("%s, after %d tries (wait a while, or run fewer agents at a time)", last.Text, tries)
	}
	return &last
}

// apiError is the provider's own account of a failure.
type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (e *apiError) Error() string {
	text := oneLine(e.Message)
	switch {
	case text == "" && e.Type == "":
		return "no reason given"
	case text == "":
		return e.Type
	}
	return text
}

// kind classes a failure by its status, or by its type where a stream tells it.
func (e *apiError) kind(status int) string {
	text := strings.ToLower(e.Message)
	switch {
	case e.Type == "billing_error", status == http.StatusPaymentRequired, strings.Contains(text, "credit balance"):
		return "account"
	case status == http.StatusUnauthorized, status == http.StatusForbidden,
		e.Type == "authentication_error", e.Type == "permission_error":
		return "auth"
	case status == http.StatusNotFound, e.Type == "not_found_error":
		return "unknown_model"
	case status == http.StatusRequestEntityTooLarge, e.Type == "request_too_large",
		strings.Contains(text, "prompt is too long"), strings.Contains(text, "exceed context limit"):
		return "context_overflow"
	case status == http.StatusTooManyRequests, e.Type == "rate_limit_error":
		return "rate_limit"
	case status == 529, e.Type == "overloaded_error":
		return "overloaded"
	case status >= 500, e.Type == "api_error", e.Type == "timeout_error", status == http.StatusRequestTimeout:
		return "server_error"
	}
	return "bad_request"
}

// refuse makes an error of every response that is not an event stream. It has
// read what it needs of the body by then, and never more than maxErrorBody:
// an answer that is packed may be very much larger than it looks.
func (m *Model) refuse(res *http.Response, model string) error {
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode == http.StatusOK && err == nil && media == "text/event-stream" {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a part of it is better than nothing
	_ = res.Body.Close()
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		where := "elsewhere"
		if u, err := url.Parse(res.Header.Get("Location")); err == nil && u.Host != "" {
			where = "to " + u.Host
		}
		return &agent.ModelError{Status: res.StatusCode, Kind: "bad_answer",
			Text: fmt.Sprintf("%s redirects %s, where the key is not sent (set ANTHROPIC_BASE_URL to the right address)", m.host, where)}
	case res.StatusCode < 300:
		return m.badAnswerSize(res, len(body), "no event stream")
	}
	var in struct {
		Error apiError `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil || (in.Error.Type == "" && in.Error.Message == "") {
		in.Error.Message = fmt.Sprintf("%s of %s", typeOf(res), sizeText(len(body)))
	}
	return m.apiFailure(res.StatusCode, &in.Error, res.Header, model)
}

// apiFailure is what a failure that the provider tells means for the caller.
func (m *Model) apiFailure(status int, e *apiError, h http.Header, model string) error {
	kind := e.kind(status)
	tell := func(format string, args ...any) *agent.ModelError {
		text := fmt.Sprintf(format, args...)
		if id := h.Get("Request-Id"); id != "" {
			text += " [request " + oneLine(id) + "]"
		}
		return &agent.ModelError{Status: status, Kind: kind, Text: text}
	}
	switch kind {
	case "account":
		return tell("the model provider's account cannot pay: %s (see the provider's billing page)", e)
	case "auth":
		return tell("%s refused the key: %s (set ANTHROPIC_API_KEY to one that may use %s)", m.host, e, model)
	case "unknown_model":
		return tell("%s knows no model %s: %s (choose another with --model)", m.host, model, e)
	case "context_overflow":
		return tell("the conversation is too long for %s: %s", model, e)
	case "rate_limit", "overloaded", "server_error":
		why := tell("%s answered %d (%s): %s", m.host, status, kind, e)
		if h.Get("X-Should-Retry") == "false" {
			return why
		}
		return &retry{why: why, after: retryAfter(h, time.Now()), most: maxTries}
	}
	if status == http.StatusProxyAuthRequired {
		kind = "unreachable"
		return tell("the proxy before %s asks for a password (set HTTPS_PROXY with one)", m.host)
	}
	return tell("%s refused the request (%d): %s", m.host, status, e)
}

// callError is what a call that brought no usable answer means. ctx is the
// caller's context, call the one that the watch can end.
func (m *Model) callError(ctx, call context.Context, model string, err error) error {
	var told *agent.ModelError
	if errors.As(err, &told) {
		return err // one of refuse's, or a retry around it
	}
	if ctx.Err() != nil {
		return fmt.Errorf("ask model %s: %w", model, context.Cause(ctx))
	}
	if call.Err() != nil { // the watch: the request may be at work and paid for, so it is not sent again
		return &agent.CutError{Err: context.Cause(call)}
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the address is in our text
	}
	why := &agent.ModelError{Kind: "unreachable", Err: err,
		Text: fmt.Sprintf("%s cannot be reached: %s (check the network, ANTHROPIC_BASE_URL and HTTPS_PROXY)", m.host, oneLine(err.Error()))}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" { // nothing was sent
		return &retry{why: why, most: maxDials}
	}
	return why
}

func (m *Model) badAnswer(res *http.Response, why string) error {
	size := 0
	if b, ok := res.Body.(*watched); ok {
		size = b.read
	}
	return m.badAnswerSize(res, size, why)
}

func (m *Model) badAnswerSize(res *http.Response, size int, why string) error {
	if size == 0 {
		why = "empty"
	}
	return &agent.ModelError{Status: res.StatusCode, Kind: "bad_answer",
		Text: fmt.Sprintf("%s gave no model's answer: %s of %s: %s (check ANTHROPIC_BASE_URL)", m.host, typeOf(res), sizeText(size), oneLine(why))}
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

// retryAfter reads how long the provider wants us to wait. It is 0 when it
// does not say, or says something that makes no sense.
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

// seconds is s as a duration; a number too large for one is an hour.
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
