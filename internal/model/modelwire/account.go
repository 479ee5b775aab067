package modelwire

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

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
