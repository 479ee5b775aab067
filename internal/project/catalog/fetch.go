package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/addresses"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

const (
	fetchTime   = 10 * time.Second
	maxRedirect = 3
)

// Server is a catalog over HTTP: an address that answers with JSON as
// [ParseJSON] reads it. It must not come from the settings of a project.
type Server struct {
	URL   string // https, or http on this machine
	Token string // sent as bearer; empty: none
	Cache string // file that keeps the last answer with its ETag; empty: none
}

// Fetched is the answer of a server, perhaps from an earlier time.
type Fetched struct {
	Data  []byte
	Stale error // why it is the answer of an earlier time; nil: it is fresh
}

// kept is the file of the cache.
type kept struct {
	URL  string          `json:"url"`
	ETag string          `json:"etag"`
	Data json.RawMessage `json:"data"`
}

// Cached returns the answer kept from an earlier time, without a request; nil if
// none was kept.
func (s Server) Cached() []byte { return s.cached().Data }

// Fetch asks a server for its agents, for at most ten seconds. If it cannot be
// reached, or fails, Fetch returns the answer kept from an earlier time, but not
// if the server refuses us. An error together with data says that the answer could
// not be kept.
func Fetch(ctx context.Context, s Server) (Fetched, error) {
	if err := allowed(s.URL); err != nil {
		return Fetched{}, fmt.Errorf("agents of a server: %w", err)
	}
	old := s.cached()
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("no answer within %s", fetchTime))
	defer cancel()
	data, etag, err := s.ask(ctx, old.ETag)
	refused := new(refusedError)
	switch {
	case errors.Is(err, errSame) && len(old.Data) > 0:
		return Fetched{Data: old.Data}, nil
	case err == nil:
		return Fetched{Data: data}, s.keep(kept{URL: s.URL, ETag: etag, Data: data})
	case errors.As(err, &refused) || len(old.Data) == 0:
		return Fetched{}, fmt.Errorf("agents of %s: %w", host(s.URL), err)
	}
	return Fetched{Data: old.Data, Stale: fmt.Errorf("agents of %s: %w", host(s.URL), err)}, nil
}

// allowed refuses an address that others could read along with, or answer.
func allowed(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil {
		return errors.New("the address is no URL, or has a password in it")
	}
	if u.Scheme == "https" || u.Scheme == "http" && addresses.Loopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%s://%s is not allowed (use https, or http on this machine)", u.Scheme, u.Host)
}

// host is the part of an address that may be shown: paths can hold secrets.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the server"
	}
	return u.Host
}

var errSame = errors.New("not modified")

// refusedError is an answer that says that these agents are not for us.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return "the server refuses: " + e.status }

func (s Server) ask(ctx context.Context, etag string) (data []byte, newTag string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, "", errors.New("the address is no URL")
	}
	req.Header.Set("Accept", "application/json")
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: redirect}
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, "", unaddressed(err)
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode == http.StatusNotModified:
		return nil, "", errSame
	case res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests:
		return nil, "", fmt.Errorf("the server fails: %s", res.Status)
	case res.StatusCode != http.StatusOK:
		return nil, "", &refusedError{res.Status}
	}
	data, err = io.ReadAll(io.LimitReader(res.Body, maxJSON+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read the answer: %w", err)
	case len(data) > maxJSON:
		return nil, "", fmt.Errorf("the answer has more than %d bytes", maxJSON)
	}
	if _, _, err := ParseJSON("the answer", data); err != nil {
		return nil, "", err
	}
	return data, res.Header.Get("ETag"), nil
}

// redirect follows a server to itself only: the token is for this server alone.
func redirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirect:
		return fmt.Errorf("more than %d redirections", maxRedirect)
	case req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme:
		return fmt.Errorf("it leads to another server, %s", req.URL.Host)
	}
	return nil
}

// unaddressed takes the address out of an error of the client.
func unaddressed(err error) error {
	if e := new(url.Error); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// cached returns the kept answer of this address. An unreadable file counts as
// missing.
func (s Server) cached() kept {
	if s.Cache == "" {
		return kept{}
	}
	root, err := os.OpenRoot(filepath.Dir(s.Cache))
	if err != nil {
		return kept{}
	}
	defer func() { _ = root.Close() }()
	data, err := untrusted.Read(root, filepath.Base(s.Cache), 2*maxJSON)
	var k kept
	if err != nil || json.Unmarshal(data, &k) != nil || k.URL != s.URL || strings.TrimSpace(string(k.Data)) == "" {
		return kept{}
	}
	return k
}

// keep replaces the file of the cache whole.
func (s Server) keep(k kept) error {
	if s.Cache == "" {
		return nil
	}
	data, err := json.Marshal(k)
	if err == nil {
		err = home.WriteAtomic(s.Cache, data)
	}
	if err != nil {
		return fmt.Errorf("keep agents of %s: %w", host(s.URL), err)
	}
	return nil
}
