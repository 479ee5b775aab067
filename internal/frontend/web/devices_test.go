package web

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// A device loses everything when it is revoked, when it logs out, and when the token is another one; others keep it.
func TestDevices(t *testing.T) {
	s, url := page(t, "name.example")
	may := func(cookie, key string) (reads, writes bool) {
		status, _, _ := asks(t, http.MethodGet, url+"/", "", map[string]string{"Cookie": cookie})
		acted, _, _ := asks(t, http.MethodPost, url+"/act/stop", `{"session":"x","ref":"y"}`, map[string]string{"Cookie": cookie, writeHeader: key})
		return status == http.StatusOK, acted == http.StatusNotFound
	}
	phone, phoneKey := pairedCookie(t, s, true)
	laptop, laptopKey := pairedCookie(t, s, true)
	reader, _ := pairedCookie(t, s, false)
	all, err := s.Devices.List()
	if err != nil || len(all) != 3 || all[0].Name != "test" || all[1].Name != "test 2" {
		t.Fatalf("%v, %+v", err, all)
	}
	if info, err := os.Stat(s.Devices.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", info.Mode(), err)
	}
	data, err := os.ReadFile(s.Devices.file)
	if err != nil || strings.Contains(string(data), phoneKey) || strings.Contains(string(data), strings.SplitN(phone, ".", 2)[1]) {
		t.Errorf("the file has a key: %v %s", err, data)
	}
	revoke := `{"id":"` + all[0].ID + `"}`
	if status, _, _ := asks(t, http.MethodPost, url+"/revoke", revoke, map[string]string{"Cookie": reader}); status != http.StatusForbidden {
		t.Errorf("a reader revokes: %d", status)
	}
	if status, text, _ := asks(t, http.MethodPost, url+"/revoke", revoke, map[string]string{"Cookie": laptop, writeHeader: laptopKey}); status != http.StatusOK {
		t.Errorf("revoke: %d %s", status, text)
	}
	if reads, writes := may(phone, phoneKey); reads || writes {
		t.Error("a revoked device is let in")
	}
	if reads, writes := may(laptop, laptopKey); !reads || !writes {
		t.Error("another device is not let in")
	}
	status, _, cookies := asks(t, http.MethodPost, url+"/logout", "{}", map[string]string{"Cookie": reader})
	if status != http.StatusOK || len(cookies) != 1 || cookies[0].MaxAge >= 0 {
		t.Errorf("log out: %d %v", status, cookies)
	}
	if reads, _ := may(reader, ""); reads {
		t.Error("a device that has logged out is let in")
	}
	_, value, _ := strings.Cut(laptop, "=")
	if _, ok := (Devices{s.Devices.file, "another token of the tests"}).find(value); ok {
		t.Error("a device of another token is let in")
	}
	if _, err := s.Devices.Revoke(t.Context(), "none"); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
}

// An open page of a revoked device ends.
func TestRevokedStream(t *testing.T) {
	s, url := page(t)
	cookie, _ := pairedCookie(t, s, false)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	e := &checked{httptest.NewRecorder(), func() bool { return s.access.reads(r) }, time.Now().Add(-checkEvery)}
	all, _ := s.Devices.List()
	if _, err := s.Devices.Revoke(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Write([]byte(":")); !errors.Is(err, errRevoked) {
		t.Errorf("an open page of a revoked device is written to: %v", err)
	}
}

// The cookie of a page that is reached by https is sent by nothing else.
func TestSecureCookie(t *testing.T) {
	s, url := page(t, "name.example")
	for origin, secure := range map[string]bool{"https://name.example": true, url: false, "": false} {
		header := map[string]string{"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0"}
		if origin != "" {
			header["Origin"] = origin
		}
		if secure {
			header["Host"] = "name.example"
		}
		code := strings.TrimPrefix(s.Link(true), "/#pair=")
		status, text, cookies := asks(t, http.MethodPost, url+"/pair", `{"code":"`+code+`"}`, header)
		if status != http.StatusOK || len(cookies) != 1 || cookies[0].Secure != secure {
			t.Errorf("origin %q: %d %s %v", origin, status, text, cookies)
		}
	}
	all, err := s.Devices.List()
	if err != nil || len(all) != 3 || all[2].Name != "Firefox on Linux 3" {
		t.Errorf("%+v %v", all, err)
	}
}

func TestBrowserName(t *testing.T) {
	for agent, want := range map[string]string{
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1": "Safari on iPhone",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36":                   "Chrome on macOS",
		"Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0.0.0 Mobile Safari/537.36 Edg/140":                    "Edge on Android",
		"": "a browser", "<script>": "a browser",
	} {
		if got := browserName(agent); got != want {
			t.Errorf("%q: %s, want %s", agent, got, want)
		}
	}
}
