package mcpauth_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/mcp/mcpauth"
	"github.com/drover-dev/drover/test/authtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// browser opens what the user is shown.
func browser(t *testing.T) func(string) {
	return func(address string) {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := c.Get(address)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("the browser gets status %d", res.StatusCode)
		}
	}
}

func open(t *testing.T) (*authtest.Server, *mcpauth.Store, string) {
	t.Helper()
	s := authtest.New(http.NotFoundHandler())
	t.Cleanup(s.Close)
	dir := t.TempDir()
	store := mcpauth.At(dir)
	t.Cleanup(store.Close)
	return s, store, dir
}

func token(t *testing.T, s *mcpauth.Store, address, refused string) string {
	t.Helper()
	got, err := s.Token(t.Context(), address, refused)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Signing in gives a token, which is kept where only the user can read it, refreshed
// when the server refuses it, by one process only, and forgotten on demand.
func TestLogin(t *testing.T) {
	s, store, dir := open(t)
	address := s.URL + "/mcp"
	if got := token(t, store, address, ""); got != "" {
		t.Errorf("before the sign-in there is the token %q", got)
	}
	if err := store.Login(t.Context(), mcpauth.Login{Address: address, Show: browser(t)}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "mcp-tokens.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	first := token(t, store, address, "")
	if first == "" || token(t, store, s.URL+"/other", "") != "" {
		t.Errorf("token %q", first)
	}
	fresh := token(t, store, address, first)
	if fresh == first || fresh == "" {
		t.Errorf("refreshed to %q", fresh)
	}
	if got := strings.Join(s.Grants(), " "); got != "authorization_code refresh_token" {
		t.Errorf("grants: %s", got)
	}
	s.Withdraw()
	if _, err := store.Token(t.Context(), address, fresh); !errors.Is(err, mcpauth.ErrSignIn) || strings.Contains(err.Error(), fresh) {
		t.Errorf("after the sign-in was withdrawn: %v", err)
	}
	if known, err := store.Logout(address); !known || err != nil || token(t, store, address, "") != "" {
		t.Errorf("logout: %v, %v", known, err)
	}
	if known, err := store.Logout(address); known || err != nil {
		t.Errorf("logout once more: %v, %v", known, err)
	}
}

// A server that lets everybody begin a session is asked for more; scopes of a sign-in are kept when
// others are asked for later.
func TestLoginScopes(t *testing.T) {
	s, store, _ := open(t)
	s.LetBegin()
	l := mcpauth.Login{Address: s.URL + "/mcp", Show: browser(t)}
	for _, step := range []struct{ more, want string }{{"", "basic"}, {"write", "basic write"}, {"admin", "admin basic write"}, {"", "basic"}} {
		if l.Scopes = strings.Fields(step.more); store.Login(t.Context(), l) != nil || !slices.Equal(slices.Sorted(slices.Values(s.Scopes())), strings.Fields(step.want)) {
			t.Errorf("with %q: asked for %q, want %q", step.more, s.Scopes(), step.want)
		}
	}
}

// T3: of many sessions whose token was refused one refreshes it, and the others use what
// it got.
func TestT3Refresh(t *testing.T) {
	s, store, dir := open(t)
	address := s.URL + "/mcp"
	if err := store.Login(t.Context(), mcpauth.Login{Address: address, Show: browser(t)}); err != nil {
		t.Fatal(err)
	}
	old := token(t, store, address, "")
	s.Expire()
	const sessions = 20
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range sessions {
		all.Go(func() {
			one := mcpauth.At(dir)
			defer one.Close()
			for range 3 {
				fresh, err := one.Token(t.Context(), address, old)
				mu.Lock()
				got[fresh]++
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if grants := strings.Join(s.Grants(), " "); grants != "authorization_code refresh_token" || len(got) != 1 || got[old] != 0 {
		t.Errorf("grants %s, tokens %v", grants, got)
	}
}

// What goes wrong is said, and nothing is kept.
func TestLoginFails(t *testing.T) {
	s, store, dir := open(t)
	s.Refuse()
	err := store.Login(t.Context(), mcpauth.Login{Address: s.URL + "/mcp", Show: browser(t)})
	if err == nil || !strings.Contains(err.Error(), "access_denied the captain says no") {
		t.Errorf("refused: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the user has gone")
	err = store.Login(ctx, mcpauth.Login{Address: s.URL + "/mcp", Show: func(string) { cancel(gone) }})
	if !errors.Is(err, gone) {
		t.Errorf("broken off: %v", err)
	}
	forged := func(address string) { // somebody else's answer
		at := address[strings.Index(address, "redirect_uri=")+len("redirect_uri="):]
		at, _, _ = strings.Cut(at, "&")
		at = strings.NewReplacer("%3A", ":", "%2F", "/").Replace(at)
		browser(t)(at + "?code=x&state=forged")
	}
	if err = store.Login(t.Context(), mcpauth.Login{Address: s.URL + "/mcp", Show: forged}); err == nil || !strings.Contains(err.Error(), "state") {
		t.Errorf("forged: %v", err)
	}
	free := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer free.Close()
	if err = store.Login(t.Context(), mcpauth.Login{Address: free.URL}); !errors.Is(err, mcpauth.ErrOpen) {
		t.Errorf("an open server: %v", err)
	}
	if err = store.Login(t.Context(), mcpauth.Login{Address: "http://127.0.0.1:1/?key=hush"}); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("nobody: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mcp-tokens.json")); !os.IsNotExist(err) {
		t.Errorf("tokens are kept: %v", err)
	}
}
