package mcpauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// ErrOpen is returned for a server that does not ask for a sign-in.
var ErrOpen = errors.New("the server does not ask for a sign-in")

// Login is one sign-in.
type Login struct {
	Address string            // of the MCP server
	Headers map[string]string // of its configuration
	// ClientID and Secret name a client that is registered already, and Metadata is
	// the address of a client metadata document. All empty: this program registers itself.
	ClientID, Secret, Metadata string
	Port                       int // of the loopback address; 0: any
	// Scopes are requested in addition to the server's and to the scopes granted before.
	Scopes []string
	// Show tells the user which address to open.
	Show func(address string)
}

// probes are requests that a server answers with its demands for a sign-in, sent one after the
// other. Some servers let any client begin a session.
//
//rules:constant never changed after this line
var probes = []string{
	`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"drover","version":"1"}}}`,
	`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`,
}

// Login has the user sign in at the authorization server of an MCP server, and keeps the
// tokens.
func (s *Store) Login(ctx context.Context, l Login) error {
	req, res, err := s.challenge(ctx, l)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	back, err := listen(ctx, l.Port)
	if err != nil {
		return err
	}
	defer back.close()
	granted, err := s.granted(l)
	if err != nil {
		return err
	}
	var got *entry
	config := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: back.address,
		AuthorizationCodeFetcher: func(ctx context.Context, a *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			l.Show(a.URL)
			return back.wait(ctx)
		},
		RequestRefreshToken:   true,
		ScopeFilter:           func(wanted []string) []string { return union(wanted, granted, l.Scopes) },
		AcceptUnadvertisedIss: true,
		Client:                s.client,
		NewTokenSource: func(_ context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			e := entry{ClientID: c.ClientID, Secret: c.ClientSecret, TokenURL: c.Endpoint.TokenURL,
				AuthStyle: c.Endpoint.AuthStyle, Scopes: c.Scopes}.with(t)
			got = &e
			return oauth2.StaticTokenSource(t), nil
		},
	}
	switch {
	case l.ClientID != "":
		config.PreregisteredClient = &oauthex.ClientCredentials{ClientID: l.ClientID}
		if l.Secret != "" {
			config.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: l.Secret}
		}
	case l.Metadata != "":
		config.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: l.Metadata}
	default:
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{
				ClientName:              "Drover",
				RedirectURIs:            []string{back.address},
				GrantTypes:              []string{"authorization_code", "refresh_token"},
				ResponseTypes:           []string{"code"},
				TokenEndpointAuthMethod: "none",
			}}
	}
	h, err := auth.NewAuthorizationCodeHandler(config)
	if err != nil {
		return err
	}
	if err := h.Authorize(ctx, req, res); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if got == nil || got.Access == "" {
		return fmt.Errorf("%s refuses the request with status %d, and not for want of a sign-in", hostOf(l.Address), res.StatusCode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key(l.Address))
	return s.change(func(all map[string]entry) (bool, error) {
		all[key(l.Address)] = *got
		return true, nil
	})
}

// granted returns the scopes of the earlier sign-in, if more are wanted now.
func (s *Store) granted(l Login) (scopes []string, err error) {
	if len(l.Scopes) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.change(func(all map[string]entry) (bool, error) {
		scopes = all[key(l.Address)].Scopes
		return false, nil
	})
	return scopes, err
}

func union(lists ...[]string) []string {
	var out []string
	for _, one := range slices.Concat(lists...) {
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// challenge asks the server without a token: its answer says where to get one.
func (s *Store) challenge(ctx context.Context, l Login) (*http.Request, *http.Response, error) {
	session, open, refusal := "", false, 0
	for _, probe := range probes {
		req, res, err := s.probe(ctx, l, probe, session)
		if err != nil {
			return nil, nil, err
		}
		code := res.StatusCode
		if code == http.StatusUnauthorized || code == http.StatusForbidden {
			return req, res, nil
		}
		if err := res.Body.Close(); err != nil {
			return nil, nil, err
		}
		if code >= 200 && code <= 299 {
			open, session = true, res.Header.Get("Mcp-Session-Id")
		} else if refusal == 0 {
			refusal = code // the first is not of every revision, the second not for every session
		}
	}
	if !open {
		return nil, nil, fmt.Errorf("%s answers with status %d", hostOf(l.Address), refusal)
	}
	return nil, nil, ErrOpen
}

func (s *Store) probe(ctx context.Context, l Login, body, session string) (*http.Request, *http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Address, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for name, value := range l.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Del("Authorization")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != probes[0] {
		req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	once := *s.client
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := once.Do(req)
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err // without the address, which may hold a secret
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reach %s: %w", hostOf(l.Address), err)
	}
	return req, res, nil
}

// callback is the loopback address that the browser is sent back to.
type callback struct {
	address string
	server  *http.Server
	done    chan struct{} // closed when the server has ended
	got     chan url.Values
}

func listen(ctx context.Context, port int) (*callback, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen for the answer of the browser: %w (choose another --port)", err)
	}
	b := &callback{address: fmt.Sprintf("http://%s/callback", l.Addr()), done: make(chan struct{}),
		got: make(chan url.Values, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		select {
		case b.got <- r.URL.Query():
		default: // only the first counts
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "Drover has the answer. You can close this window.")
	})
	b.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { // close waits for done
		defer close(b.done)
		_ = b.server.Serve(l) // until close
	}()
	return b, nil
}

// wait returns the answer that the browser brings.
func (b *callback) wait(ctx context.Context) (*auth.AuthorizationResult, error) {
	select {
	case v := <-b.got:
		if why := v.Get("error"); why != "" {
			return nil, fmt.Errorf("the sign-in was refused: %.100s %.500s", why, v.Get("error_description"))
		}
		return &auth.AuthorizationResult{Code: v.Get("code"), State: v.Get("state"), Iss: v.Get("iss")}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (b *callback) close() {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	if b.server.Shutdown(ctx) != nil { // the browser keeps its connection
		_ = b.server.Close()
	}
	<-b.done
}
