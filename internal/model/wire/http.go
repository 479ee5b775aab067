package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// ParseBase checks the base URL of a provider. The error tells the user what to
// set: variable, to something like usual.
func ParseBase(provider, raw, variable, usual string) (*url.URL, error) {
	base, err := url.Parse(raw)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("base URL %q of the %s provider is no http address (set %s to one such as %s)", raw, provider, variable, usual)
	}
	return base, nil
}

// CheckSecret refuses a key that cannot stand in a header.
func CheckSecret(provider, secret, variable string) error {
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return fmt.Errorf("the key of the %s provider has blanks or line breaks in it, or letters that no key has (set %s again)", provider, variable)
	}
	return nil
}

// Client is a copy of c, or one of our own, that gives a redirect back as it
// is: a followed one would carry the key to a host that nobody chose.
func Client(c *http.Client) *http.Client {
	var own http.Client
	if c != nil {
		own = *c
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		// Hundreds of agents talk to one host; the default of 2 would have them
		// open a connection for nearly every call.
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 512, 512
		own.Transport = t
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Head encodes head, which is an object with at least one field, and leaves it
// open for more fields.
func Head(head any) ([]byte, error) {
	buf, err := Encode(head)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return buf[:len(buf)-1], nil
}

// Encode is JSON without HTML escaping.
func Encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// Attach makes parts the body of a request. Each sending lets go of its own
// list of parts as it goes, so a call that waits for its answer holds no
// request.
func Attach(r *http.Request, parts net.Buffers) {
	r.GetBody = func() (io.ReadCloser, error) {
		own := slices.Clone(parts)
		return io.NopCloser(&own), nil
	}
	r.ContentLength = 0
	for _, p := range parts {
		r.ContentLength += int64(len(p))
	}
	r.Body, _ = r.GetBody() // the function above has no error
}

// Who sets the headers that tell which agent calls.
func Who(req *agent.Request, set func(name, value string)) {
	for _, h := range [...]struct{ name, value string }{
		{"Drover-Session-Id", req.SessionID}, {"Drover-Agent-Id", req.AgentID}, {"Drover-Agent", req.Agent},
	} {
		if h.value != "" {
			set(h.name, printable(h.value))
		}
	}
}

// printable makes text fit for a header: agent types are named by users.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, s)
}
