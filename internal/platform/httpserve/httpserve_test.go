package httpserve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The end of the server cancels open requests, after end was called, and leaves nothing.
func TestServe(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open, ended := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w = Timed(w)
			KeepOpen(w)
			_, _ = w.Write([]byte("begun"))
			_ = http.NewResponseController(w).Flush()
			close(open)
			<-r.Context().Done()
			<-ended
		}), func() { close(ended) })
	}()
	asked := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+l.Addr().String(), nil)
		if err == nil {
			var resp *http.Response
			if resp, err = http.DefaultTransport.RoundTrip(req); err == nil {
				buf := make([]byte, 5)
				_, err = resp.Body.Read(buf)
				<-open
				cancel()
				for err == nil {
					_, err = resp.Body.Read(buf)
				}
				if errors.Is(err, io.EOF) { // the handler has returned, the connection was not cut
					err = nil
				}
				err = errors.Join(err, resp.Body.Close())
			}
		}
		asked <- err
	}()
	if err := <-asked; err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := Serve(t.Context(), l, http.NotFoundHandler(), func() {}); err == nil {
		t.Error("a closed listener is served")
	}
}

// Only this machine and named hosts are local; only pages of the requested host, and allowed ones, may send requests.
func TestHosts(t *testing.T) {
	for host, want := range map[string]bool{"localhost": true, "LOCALHOST:80": true, "127.0.0.1:1": true, "[::1]:1": true, "box.lan:80": true,
		"": false, "evil.example": false, "localhost.evil.example": false, "10.0.0.1": false} {
		if Local(host, "box.lan") != want {
			t.Errorf("%q: local is %t", host, !want)
		}
	}
	for origin, foreign := range map[string]bool{"http://box.lan": false, "https://box.lan": false, "http://localhost:3": false,
		"http://evil.example": true, "null": true, "file://box.lan": true} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://box.lan/", nil)
		r.Header.Set("Origin", origin)
		if got := ForeignOrigin(r, func(host string) bool { return Local(host) }); (got != "") != foreign {
			t.Errorf("%s: %q", origin, got)
		}
	}
}

// A token is compared by its value, and its scheme in any case.
func TestBearer(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if _, ok := Bearer(r); ok {
		t.Error("a token without a header")
	}
	r.Header.Set("Authorization", "bearer  secret ")
	if token, ok := Bearer(r); !ok || !Same(token, "secret") || Same(token, "secre") {
		t.Errorf("token %q, %t", token, ok)
	}
}
