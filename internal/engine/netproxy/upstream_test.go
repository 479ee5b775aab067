package netproxy

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// Where the user has a proxy, connections go through it: tunnels by CONNECT, requests of HTTP as requests to
// it. It resolves names that cannot be resolved here; addresses of private networks are refused all the same.
func TestUpstream(t *testing.T) {
	server := web(t)
	address := strings.TrimPrefix(server.URL, "http://")
	corp := newWorld(t, address, func(c *Config) {
		c.Match = func(r Request) (bool, bool) { return r.Host == "inside.example" || r.Host == public, false }
	})
	w := newWorld(t, address, func(c *Config) {
		c.Match = func(r Request) (bool, bool) { return strings.HasSuffix(r.Host, ".example"), false }
		c.Upstream = func(to *url.URL) (*url.URL, error) {
			switch to.Hostname() {
			case "direct.example":
				return nil, nil //nolint:nilnil // as the variables say it
			case "other.example":
				return url.Parse("socks5://127.0.0.1:1")
			}
			via := corp.url("http")
			via.User = url.UserPassword("task9", "secret")
			return via, nil
		}
		known := c.Resolve
		c.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			if name == "inside.example" {
				return nil, errors.New("no such host")
			}
			return known(ctx, name)
		}
	})
	w.names["private.example"] = []string{"10.1.2.3"}

	c := w.dial()
	if got := c.connect("inside.example:443"); !strings.Contains(got, "200") {
		t.Errorf("CONNECT: %s", got)
	}
	c.send("GET /tunnel HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if _, body := c.response(); !strings.HasPrefix(body, "GET /tunnel host=x") {
		t.Errorf("through a tunnel: %s", body)
	}
	resp, err := w.client().Get("http://inside.example/plain")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.HasPrefix(string(body), "GET /plain host=inside.example") || strings.Contains(string(body), "Proxy-Auth") {
		t.Errorf("a request: %d %s", resp.StatusCode, body)
	}
	if got := w.dial().socks(3, name("inside.example"), 80); got != 0 {
		t.Errorf("SOCKS: %d", got)
	}
	for host, want := range map[string]struct{ status, text string }{
		"barred.example":  {"502", "the proxy http://task9:xxxxx@" + corp.addr + " refuses a connection to barred.example:443: 403"},
		"private.example": {"403", "10.1.2.3"},
		"other.example":   {"502", "speaks no HTTP"},
		"direct.example":  {"200", ""},
	} {
		c := w.dial()
		c.send("CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + "\r\n" + auth + "\r\n")
		if want.text == "" {
			if got := c.head(); !strings.Contains(got, want.status) {
				t.Errorf("%s: %s", host, got)
			}
			continue
		}
		resp, body := c.response()
		if !strings.HasPrefix(resp.Status, want.status) || !strings.Contains(body, want.text) {
			t.Errorf("%s: %s %s", host, resp.Status, body)
		}
	}
	for _, one := range corp.list(&corp.outcomes) {
		if !strings.HasPrefix(one, "task9 inside.example") && !strings.HasPrefix(one, "task9 barred.example:443 refused") {
			t.Errorf("the proxy was asked: %s", one)
		}
	}
}
