package mcpauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/oauth2"

	"github.com/drover-dev/drover/internal/platform/home"
)

const (
	file    = "mcp-tokens.json" // below the folder of the state
	maxFile = 1 << 20
	// early is how long before its end a token is refreshed.
	early = 30 * time.Second
	// answerWait is how long an authorization server may take for one answer.
	answerWait = 30 * time.Second
)

// ErrSignIn is wrapped by errors that a new sign-in repairs.
var ErrSignIn = errors.New("sign in again with `drover mcp login`")

// entry is the stored part of a sign-in.
type entry struct {
	ClientID  string           `json:"client_id"`
	Secret    string           `json:"client_secret,omitempty"`
	TokenURL  string           `json:"token_url"`
	AuthStyle oauth2.AuthStyle `json:"auth_style,omitempty"`
	Scopes    []string         `json:"scopes,omitempty"`
	Access    string           `json:"access_token"`
	Refresh   string           `json:"refresh_token,omitempty"`
	Expires   time.Time        `json:"expires,omitzero"` // zero: not said
}

func (e entry) valid(refused string) bool {
	return e.Access != "" && e.Access != refused && (e.Expires.IsZero() || time.Until(e.Expires) > early)
}

// Store keeps the tokens of a user. Its methods may be called by several goroutines.
type Store struct {
	dir    string
	client *http.Client

	mu    sync.Mutex // held over calls of authorization servers, so that a token is refreshed once
	known map[string]entry
}

// At names the store below the folder of the state. It does no I/O.
func At(dir string) *Store {
	return &Store{dir: dir, known: map[string]entry{}, client: &http.Client{Timeout: answerWait}}
}

// Close closes idle connections.
func (s *Store) Close() { s.client.CloseIdleConnections() }

// key returns the key of a server's tokens.
func key(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Fragment, u.RawFragment, u.User = "", "", nil
	return u.String()
}

// Token returns the token of the server at an address; empty: the user has not signed in there.
// refused is a token that the server has just refused, or empty: Token refreshes it.
func (s *Store) Token(ctx context.Context, address, refused string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := key(address)
	if e := s.known[at]; e.valid(refused) {
		return e.Access, nil
	}
	if _, err := os.Stat(filepath.Join(s.dir, file)); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	token := ""
	err := s.change(func(all map[string]entry) (bool, error) {
		e, ok := all[at]
		if !ok {
			delete(s.known, at)
			return false, nil
		}
		if e.valid(refused) { // another process has refreshed it
			s.known[at], token = e, e.Access
			return false, nil
		}
		fresh, err := s.refresh(ctx, e)
		if err != nil {
			return false, err
		}
		all[at], s.known[at], token = fresh, fresh, fresh.Access
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", hostOf(address), err)
	}
	return token, nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the server"
	}
	return u.Host
}

func (s *Store) refresh(ctx context.Context, e entry) (entry, error) {
	if e.Refresh == "" {
		return e, fmt.Errorf("it has expired or was withdrawn (%w)", ErrSignIn)
	}
	c := oauth2.Config{ClientID: e.ClientID, ClientSecret: e.Secret, Scopes: e.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: e.TokenURL, AuthStyle: e.AuthStyle}}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, s.client)
	t, err := c.TokenSource(ctx, &oauth2.Token{RefreshToken: e.Refresh}).Token()
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.ErrorCode == "invalid_grant" {
		return e, fmt.Errorf("the sign-in has ended (%w)", ErrSignIn)
	}
	if err != nil {
		return e, fmt.Errorf("refresh it: %w", err)
	}
	return e.with(t), nil
}

func (e entry) with(t *oauth2.Token) entry {
	e.Access, e.Expires = t.AccessToken, t.Expiry.UTC()
	if t.Expiry.IsZero() {
		e.Expires = time.Time{}
	}
	if t.RefreshToken != "" {
		e.Refresh = t.RefreshToken
	}
	return e
}

// Logout forgets the tokens of a server, and reports whether there were any.
func (s *Store) Logout(address string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key(address))
	known := false
	err := s.change(func(all map[string]entry) (bool, error) {
		_, known = all[key(address)]
		delete(all, key(address))
		return known, nil
	})
	return known, err
}

// change lets f change the stored sign-ins, and writes them if f returns true. Other processes wait.
func (s *Store) change(f func(map[string]entry) (bool, error)) error {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return fmt.Errorf("read tokens of MCP servers: %w", err)
	}
	defer root.Close()
	lock, err := root.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock tokens of MCP servers: %w", err)
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock tokens of MCP servers: %w", err)
	}
	path := filepath.Join(s.dir, file)
	all := map[string]entry{}
	data, err := read(root)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read tokens of MCP servers: %s: %w (remove it and sign in again)", path, err)
	}
	changed, err := f(all)
	if err != nil || !changed {
		return err
	}
	data, err = json.MarshalIndent(all, "", "\t")
	if err == nil {
		err = home.At(s.dir).WriteAtomic(path, data)
	}
	if err != nil {
		return fmt.Errorf("keep tokens of MCP servers: %w", err)
	}
	return nil
}

func read(root *os.Root) ([]byte, error) {
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}
