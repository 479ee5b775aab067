package modelwire

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// CheckSecret refuses a key that a header cannot hold.
func CheckSecret(provider, secret, variable string) error {
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return fmt.Errorf("the key of the %s provider has blanks or line breaks in it, or letters that no key has (set "+
			"%s again)", provider, variable)
	}
	return nil
}

// Client returns a copy of c, or a client of its own, that does not follow redirects:
// they could carry the key to a host that the user did not choose.
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
	buf, err := jsonc.Encode(head)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return buf[:len(buf)-1], nil
}

// request makes the request of one attempt. Each lets go of its own list of parts
// as it goes, so a call that waits for its answer holds no request.
func (c *Call) request(ctx context.Context) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, nil)
	if err != nil {
		return nil, err
	}
	r.Header = c.Header.Clone()
	r.GetBody = func() (io.ReadCloser, error) {
		own := slices.Clone(c.Body)
		return io.NopCloser(&own), nil
	}
	for _, p := range c.Body {
		r.ContentLength += int64(len(p))
	}
	r.Body, err = r.GetBody()
	return r, err
}

// Header returns the headers of every call of a model: the content types, and the
// calling agent.
func Header(req *agent.Request) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	for _, who := range [...]struct{ name, value string }{
		{"Drover-Session-Id", req.SessionID}, {"Drover-Agent-Id", req.AgentID}, {"Drover-Agent", req.Agent},
	} {
		if who.value != "" {
			h.Set(who.name, printable(who.value))
		}
	}
	return h
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

// Account is how a provider is reached. The zero value of a field is its default.
type Account struct {
	BaseURL    string        // default: the provider's
	APIKey     string        // may be empty for a server that wants none
	HTTPClient *http.Client  // default: one of its own; redirects are never followed
	Limiter    *Limiter      // default: one of its own. Shared by all models of a process
	Calls      int           // of one model at the same time; 0: as the limiter has it
	MaxTokens  int           // of a reply when the request does not say; 0: as the provider has it
	Idle       time.Duration // a call that brings no byte for so long is cut; default: 120 s

	// Backoff is the wait after so many tries. Default: Backoff.
	Backoff func(tries int) time.Duration
}

// Endpoint checks the account of a provider, whose usual address is given, and makes its
// endpoint. token is a second secret, or empty. The errors tell the user what to set.
func (a Account) Endpoint(provider, usual, token string) (*Endpoint, *url.URL, error) {
	name := strings.ToUpper(provider)
	e := &Endpoint{Secret: strings.TrimSpace(a.APIKey + " " + token),
		KeyVar: name + "_API_KEY", URLVar: name + "_BASE_URL",
		HTTP: Client(a.HTTPClient), Limiter: a.Limiter, Calls: a.Calls, Idle: a.Idle, Backoff: a.Backoff}
	raw := cmp.Or(a.BaseURL, usual)
	base, err := url.Parse(raw)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, nil, fmt.Errorf("base URL %q of the %s provider is no http address (set %s to one such as %s)", raw,
			provider, e.URLVar, usual)
	}
	for _, secret := range []string{a.APIKey, token} {
		if err := CheckSecret(provider, secret, e.KeyVar); err != nil {
			return nil, nil, err
		}
	}
	e.Host = base.Host
	if e.Limiter == nil {
		e.Limiter = NewLimiter(0)
	}
	return e, base, nil
}
