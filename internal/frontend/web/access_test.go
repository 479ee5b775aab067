package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const token = "a token of the tests"

// page is a server without sessions, and its address.
func page(t *testing.T, hosts ...string) (*Server, string) {
	t.Helper()
	h := httptest.NewUnstartedServer(nil)
	s, err := New(Config{Token: token, Hosts: hosts, Now: time.Now, Devices: DevicesOf(filepath.Join(t.TempDir(), "token"), token),
		Sessions: func(context.Context, bool) ([]Session, error) { return nil, nil },
		Checks:   func(context.Context) []Check { return nil },
		Todos:    func(context.Context, string) ([]TodoList, error) { return nil, nil },
		Used:     func(context.Context, time.Time, func(Call)) error { return nil },
		MarkSeen: func(context.Context, control.Info, []task.ID) error { return nil }}, h.Listener)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.Config.BaseContext = func(net.Listener) context.Context { return ctx } // as httpserve does
	h.Config.Handler = s.handler()
	h.Start()
	t.Cleanup(h.Close)
	t.Cleanup(cancel)
	return s, h.URL
}

// pairedCookie is the cookie of a browser that is paired to read, and its key for changes if it may write.
func pairedCookie(t testing.TB, s *Server, writes bool) (cookie, key string) {
	t.Helper()
	k, err := s.Devices.add(t.Context(), "test", writes, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s.access.cookie + "=" + k.id + "." + k.read, k.change
}

// asks sends a request and returns its status, its text and its cookies.
func asks(t *testing.T, method, url, body string, header map[string]string) (int, string, []*http.Cookie) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		if k == "Host" {
			r.Host = v
		}
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if p := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
		t.Errorf("%s %s: policy %q", method, url, p)
	}
	return resp.StatusCode, string(data), resp.Cookies()
}

// TestForeign refuses what a page of another site, or another name of this address, asks for.
func TestForeign(t *testing.T) {
	_, url := page(t, "name.example")
	own := strings.TrimPrefix(url, "http://")
	auth := "Bearer " + token
	for name, c := range map[string]struct {
		header map[string]string
		status int
	}{
		"ours":          {map[string]string{"Host": own, "Origin": url, "Sec-Fetch-Site": "same-origin"}, http.StatusOK},
		"program":       {nil, http.StatusOK},
		"tunnel":        {map[string]string{"Host": "name.example", "Origin": "https://name.example"}, http.StatusOK},
		"rebound name":  {map[string]string{"Host": "evil.example"}, http.StatusForbidden},
		"other site":    {map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"other port":    {map[string]string{"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		"no origin":     {map[string]string{"Origin": "null"}, http.StatusForbidden},
		"fetched":       {map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"same site":     {map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, http.StatusForbidden},
		"clicked link":  {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, http.StatusOK},
		"other machine": {map[string]string{"Host": "192.0.2.1"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			header := map[string]string{"Authorization": auth}
			for k, v := range c.header {
				header[k] = v
			}
			if status, text, _ := asks(t, http.MethodGet, url+"/", "", header); status != c.status {
				t.Errorf("status %d, not %d: %.200s", status, c.status, text)
			}
		})
	}
}

// TestPairing gives one browser its keys for a link. Reading needs the cookie, and writing the header
// as well.
func TestPairing(t *testing.T) {
	s, url := page(t)
	code := func(write bool) string { return `{"code":"` + strings.TrimPrefix(s.Link(write), "/#pair=") + `"}` }
	pair := func(body string) (int, string, string) {
		status, text, cookies := asks(t, http.MethodPost, url+"/pair", body, nil)
		if len(cookies) == 0 {
			return status, text, ""
		}
		if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(text, c.Value) {
			t.Errorf("cookie %+v, answer %s", c, text)
		}
		return status, text, cookies[0].Name + "=" + cookies[0].Value
	}
	if status, text, _ := asks(t, http.MethodGet, url+"/", "", nil); status != http.StatusUnauthorized || strings.Contains(text, "data-mark") {
		t.Errorf("a browser that is not paired: %d %s", status, text)
	}
	for _, path := range []string{"/stream", "/"} {
		if status, _, _ := asks(t, http.MethodGet, url+path, "", map[string]string{"Cookie": s.access.cookie + "=guessed"}); status != http.StatusUnauthorized {
			t.Errorf("%s with a guessed cookie: %d", path, status)
		}
	}
	keyIn := func(text string) string {
		return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), `{"key":"`), `"}`)
	}
	link := code(true)
	status, text, cookie := pair(link)
	key := keyIn(text)
	if status != http.StatusOK || len(key) < 20 {
		t.Fatalf("paired: %d %s", status, text)
	}
	if status, _, again := pair(link); status != http.StatusForbidden || again != "" {
		t.Errorf("the link again: %d", status)
	}
	if status, _, _ := pair(`{"code":""}`); status != http.StatusForbidden {
		t.Errorf("no code: %d", status)
	}
	if status, text, _ := asks(t, http.MethodGet, url+"/", "", map[string]string{"Cookie": cookie}); status != http.StatusOK || strings.Contains(text, key) {
		t.Errorf("the page: %d, and the key of writing is in it: %t", status, strings.Contains(text, key))
	}
	reader, _ := pairedCookie(t, s, false)
	other, otherKey := pairedCookie(t, s, true)
	for name, c := range map[string]struct {
		header map[string]string
		status int
	}{
		"cookie only":     {map[string]string{"Cookie": cookie}, http.StatusForbidden},
		"header only":     {map[string]string{writeHeader: key}, http.StatusForbidden},
		"read key":        {map[string]string{"Cookie": cookie, writeHeader: strings.SplitN(cookie, ".", 2)[1]}, http.StatusForbidden},
		"another's key":   {map[string]string{"Cookie": cookie, writeHeader: otherKey}, http.StatusForbidden},
		"reader with key": {map[string]string{"Cookie": reader, writeHeader: key}, http.StatusForbidden},
		"reader, no key":  {map[string]string{"Cookie": reader, writeHeader: ""}, http.StatusForbidden},
		"both":            {map[string]string{"Cookie": cookie, writeHeader: key}, http.StatusNotFound},
		"another device":  {map[string]string{"Cookie": other, writeHeader: otherKey}, http.StatusNotFound},
		"program":         {map[string]string{"Authorization": "Bearer " + token}, http.StatusNotFound},
		"another token":   {map[string]string{"Authorization": "Bearer x", "Cookie": cookie, writeHeader: key}, http.StatusForbidden},
		"another origin":  {map[string]string{"Cookie": cookie, writeHeader: key, "Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
	} {
		if status, text, _ := asks(t, http.MethodPost, url+"/act/stop", `{"session":"x","ref":"y"}`, c.header); status != c.status {
			t.Errorf("%s: status %d, not %d: %s", name, status, c.status, text)
		}
	}
	status, text, cookie = pair(code(false))
	if status != http.StatusOK || strings.Contains(text, "key") {
		t.Errorf("a link for reading: %d %s", status, text)
	}
	if status, _, _ := asks(t, http.MethodGet, url+"/", "", map[string]string{"Cookie": cookie}); status != http.StatusOK {
		t.Errorf("the page for a reader: %d", status)
	}
	if status, text, _ := pair(`{"code":"` + token + `"}`); status != http.StatusOK || len(keyIn(text)) < 20 {
		t.Errorf("the token: %d %s", status, text)
	}
}

// TestOldLink refuses a link after ten minutes.
func TestOldLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := codes{open: map[string]pairing{}}
		old, young := c.add(true, time.Now()), c.add(false, time.Now().Add(time.Second))
		time.Sleep(codeLife)
		if _, ok := c.take(old, time.Now()); ok {
			t.Error("an old link pairs")
		}
		if p, ok := c.take(young, time.Now()); !ok || p.write {
			t.Errorf("a young link: %v, %t", p, ok)
		}
		for range mostCodes {
			c.add(true, time.Now())
		}
		if c.add(true, time.Now()) != "" {
			t.Error("links without end")
		}
	})
}
