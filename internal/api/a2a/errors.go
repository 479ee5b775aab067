package a2a

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// StatusError is an answer with an error status of HTTP.
type StatusError struct {
	Code       int
	Message    string        // of the agent; one line
	RetryAfter time.Duration // requested by the agent; 0: none
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the agent answers %d %s", e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// statusError is the error of an answer with an error status. The body may be an error of JSON-RPC.
func statusError(resp *http.Response) *StatusError {
	e := &StatusError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	var said envelope
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err == nil && json.Unmarshal(data, &said) == nil && said.Error != nil {
		e.Message = excerpt.Line(said.Error.Message, 300)
	}
	return e
}

// retryAfter parses seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// RefusedError is a failure that another try does not change.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

func refuse(format string, words ...any) error { return &RefusedError{fmt.Errorf(format, words...)} }

// Temporary reports whether another try may succeed: the agent is out of reach, busy or broken, or a proxy answers in
// its place.
func Temporary(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		switch status.Code {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return true
		}
		return status.Code >= 500
	}
	var final *RefusedError
	return err != nil && !errors.As(err, &final)
}

// refused is an error of JSON-RPC. An internal one may be temporary.
func refused(e *Error) error {
	said := &Error{Code: e.Code, Message: fmt.Sprintf("the agent answers %d: %s", e.Code, excerpt.Line(e.Message, 300))}
	if e.Code == CodeInternal || e.Code == CodeInvalidAnswer {
		return said
	}
	return &RefusedError{said}
}

// is reports whether the agent answered with a code.
func is(err error, code int) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
