// Package authtest is an authorization server for tests, with an MCP server behind it.
//
// [Server] checks what clients send as OAuth 2.1 wants it: PKCE, the resource, the
// redirect address, one use of each code and refresh token. Production does not import it.
package authtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Server is both servers on one address: the MCP server at /mcp.
type Server struct {
	*httptest.Server
	mcp http.Handler

	mu        sync.Mutex // guards what follows
	next      int
	redirects []string          // that were registered
	codes     map[string]string // challenges, by code
	access    map[string]bool   // tokens that are good
	refresh   map[string]bool
	refuse    bool
	begins    bool     // everybody may begin a session
	scopes    []string // that the last authorization asked for
	grants    []string // that were given
}

// New starts the servers; mcp answers requests with a good token.
func New(mcp http.Handler) *Server {
	s := &Server{mcp: mcp, codes: map[string]string{}, access: map[string]bool{}, refresh: map[string]bool{}}
	s.Server = httptest.NewServer(s.mux())
	return s
}

// Expire makes all access tokens bad.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.access)
}

// Withdraw makes all tokens bad.
func (s *Server) Withdraw() {
	s.Expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.refresh)
}

// Refuse lets the user refuse the next sign-in.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = true
}

// LetBegin lets everybody begin a session: only other requests need a token.
func (s *Server) LetBegin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begins = true
}

// Scopes are those that the last authorization asked for.
func (s *Server) Scopes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.scopes)
}

// Grants are the kinds of grants that tokens were given for, oldest first.
func (s *Server) Grants() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.grants)
}

func (s *Server) mux() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("/mcp", s.protected)
	m.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"resource": s.URL + "/mcp", "authorization_servers": []string{s.URL}})
	})
	m.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize",
			"token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"none"}})
	})
	m.HandleFunc("POST /register", s.register)
	m.HandleFunc("GET /authorize", s.authorize)
	m.HandleFunc("POST /token", s.token)
	return m
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func (s *Server) protected(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	begin := s.begins && bytes.Contains(body, []byte(`"initialize"`))
	good := begin || s.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	s.mu.Unlock()
	if begin {
		answer(w, 200, map[string]any{"jsonrpc": "2.0", "id": 1, "result": map[string]any{}})
		return
	}
	if !good {
		w.Header().Set("WWW-Authenticate",
			fmt.Sprintf("Bearer scope=\"basic\", resource_metadata=%q", s.URL+"/.well-known/oauth-protected-resource/mcp"))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mcp.ServeHTTP(w, r)
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var c struct {
		Redirects []string `json:"redirect_uris"`
	}
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || len(c.Redirects) == 0 {
		answer(w, 400, map[string]string{"error": "invalid_client_metadata"})
		return
	}
	s.mu.Lock()
	s.redirects = append(s.redirects, c.Redirects...)
	s.mu.Unlock()
	answer(w, 201, map[string]any{"client_id": "client-1", "redirect_uris": c.Redirects,
		"token_endpoint_auth_method": "none"})
}

func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes = strings.Fields(q.Get("scope"))
	if q.Get("client_id") != "client-1" || !slices.Contains(s.redirects, q.Get("redirect_uri")) ||
		q.Get("code_challenge_method") != "S256" || q.Get("resource") != s.URL+"/mcp" || q.Get("state") == "" {
		http.Error(w, "a bad request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}}
	if s.refuse {
		s.refuse = false
		back.Set("error", "access_denied")
		back.Set("error_description", "the captain says no")
	} else {
		s.next++
		code := fmt.Sprint("code-", s.next)
		s.codes[code] = q.Get("code_challenge")
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grant, good := r.PostFormValue("grant_type"), false
	switch grant {
	case "authorization_code":
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		code := r.PostFormValue("code")
		good = s.codes[code] != "" && s.codes[code] == base64.RawURLEncoding.EncodeToString(sum[:]) &&
			r.PostFormValue("resource") == s.URL+"/mcp"
		delete(s.codes, code)
	case "refresh_token":
		good = s.refresh[r.PostFormValue("refresh_token")]
		delete(s.refresh, r.PostFormValue("refresh_token"))
	}
	if !good || r.PostFormValue("client_id") != "client-1" {
		answer(w, 400, map[string]string{"error": "invalid_grant"})
		return
	}
	s.next++
	access, refresh := fmt.Sprint("access-", s.next), fmt.Sprint("refresh-", s.next)
	s.access[access], s.refresh[refresh] = true, true
	s.grants = append(s.grants, grant)
	answer(w, 200, map[string]any{"access_token": access, "refresh_token": refresh,
		"token_type": "Bearer", "expires_in": 3600})
}
