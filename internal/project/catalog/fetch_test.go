package catalog

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const remote = `{"far": {"description": "d", "prompt": "p"}}`

// A server is asked once for what it has; when it fails, what it had counts.
func TestFetch(t *testing.T) {
	status, full, same := http.StatusOK, 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case status != http.StatusOK:
			w.WriteHeader(status)
		case r.Header.Get("Authorization") != "Bearer key":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("If-None-Match") == `"v1"`:
			same++
			w.WriteHeader(http.StatusNotModified)
		default:
			full++
			w.Header().Set("ETag", `"v1"`)
			_, _ = io.WriteString(w, remote)
		}
	}))
	defer server.Close()
	s := Server{URL: server.URL + "/agents?secret", Token: "key", Cache: filepath.Join(t.TempDir(), "agents.json")}
	for range 2 {
		got, err := Fetch(t.Context(), s)
		if err != nil || string(got.Data) != remote && !strings.Contains(string(got.Data), `"far"`) || got.Stale != nil {
			t.Errorf("%s, %v, %v", got.Data, got.Stale, err)
		}
	}
	if full != 1 || same != 1 {
		t.Errorf("%d answers, %d unchanged", full, same)
	}
	if info, err := os.Stat(s.Cache); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	status = http.StatusBadGateway
	got, err := Fetch(t.Context(), s)
	if err != nil || got.Stale == nil || !strings.Contains(got.Stale.Error(), "502") || strings.Contains(got.Stale.Error(), "secret") {
		t.Errorf("failing: %s, %v, %v", got.Data, got.Stale, err)
	}
	if _, _, err := ParseJSON("x", got.Data); err != nil {
		t.Error(err)
	}
	if _, err := Fetch(t.Context(), Server{URL: s.URL + "2", Cache: s.Cache}); err == nil {
		t.Error("what another address had was taken")
	}
	status = http.StatusForbidden
	if got, err := Fetch(t.Context(), s); err == nil || got.Data != nil {
		t.Errorf("refused, and yet %s", got.Data)
	}
	status = http.StatusOK
	s.Token = ""
	if _, err := Fetch(t.Context(), s); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a key: %v", err)
	}
	server.Close()
	if got, err := Fetch(t.Context(), s); err != nil || got.Stale == nil || strings.Contains(got.Stale.Error(), "secret") {
		t.Errorf("gone: %v, %v", got.Stale, err)
	}
	if left, err := os.ReadDir(filepath.Dir(s.Cache)); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestFetchRefuses(t *testing.T) {
	leaked := ""
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked = r.Header.Get("Authorization") + r.URL.Path
		_, _ = io.WriteString(w, remote)
	}))
	defer stranger.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, stranger.URL, http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat(" ", maxJSON)+remote)
		case "/text":
			_, _ = io.WriteString(w, "<html>")
		case "/good":
			_, _ = io.WriteString(w, remote)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{"/away": "another server", "/round": "redirections", "/large": "more than", "/text": "not a JSON object", "/none": "404", "/here": ""} {
		_, err := Fetch(t.Context(), Server{URL: server.URL + path, Token: "key", Cache: filepath.Join(t.TempDir(), "c")})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if leaked != "" {
		t.Errorf("the stranger was asked: %s", leaked)
	}
	for _, address := range []string{"http://example.com/a", "file:///etc/passwd", "x", "", "https://user:word@example.com", "http://127.0.0.1.example.com", "ftp://localhost/a"} {
		if _, err := Fetch(t.Context(), Server{URL: address}); err == nil || !strings.Contains(err.Error(), "not allowed") && !strings.Contains(err.Error(), "no URL") {
			t.Errorf("%s: %v", address, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := Fetch(ctx, Server{URL: server.URL + "/good"}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
	if got, err := Fetch(t.Context(), Server{URL: server.URL + "/good", Cache: filepath.Join(t.TempDir(), "no", "folder")}); err == nil || got.Data == nil {
		t.Errorf("that nothing was kept is not said, or nothing is given: %v", err)
	}
}
