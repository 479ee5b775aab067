package netproxy

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// RefusedHeader is the header of a response that says in one line which connection was
// refused and what would allow it. A response of a server never has it.
const RefusedHeader = "Drover-Refused"

// ServeHTTP answers one HTTP request; each on a connection is judged by itself.
func (s *service) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	c := hr.Context().Value(connKey{}).(*conn)
	defer func() {
		if c.hijacked.Load() {
			close(c.ended)
		}
	}()
	if c.within != nil {
		s.serveWithin(w, hr, *c.within)
		return
	}
	user, password := proxyCredentials(hr.Header)
	switch err := s.claim(c, user, password); {
	case errors.Is(err, errBusy):
		w.Header().Set("Connection", "close")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		w.Header().Set("Proxy-Authenticate", `Basic realm="drover"`)
		http.Error(w, err.Error(), http.StatusProxyAuthRequired)
		return
	}
	r, err := requestOf(user, hr)
	if err != nil {
		http.Error(w, excerpt.Line("read the request to the proxy: "+err.Error(), 300), http.StatusBadRequest)
		return
	}
	if hr.Method == http.MethodConnect && s.cfg.Credential != nil {
		if credential := s.cfg.Credential(r); credential != nil {
			s.intercept(w, c, within{r, credential})
			return
		}
	}
	up, via, err := s.connect(hr.Context(), r, hr.Method != http.MethodConnect)
	if err != nil {
		s.logFailure(r, err)
		sayFailure(w, err)
		return
	}
	defer func() { _ = up.Close() }()
	if hr.Method == http.MethodConnect {
		s.tunnel(w, r, up)
		return
	}
	s.forward(w, hr, r, up, via, nil)
}

// proxyCredentials returns "" without readable credentials.
func proxyCredentials(h http.Header) (user, password string) {
	scheme, value, _ := strings.Cut(h.Get("Proxy-Authorization"), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", ""
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	if err != nil {
		return "", ""
	}
	user, password, _ = strings.Cut(string(text), ":")
	return user, password
}

// requestOf reads where a request is to go: from its first line alone.
func requestOf(user string, hr *http.Request) (Request, error) {
	if hr.Method == http.MethodConnect {
		host, port, err := net.SplitHostPort(hr.RequestURI)
		if err != nil {
			return Request{}, errors.New("CONNECT needs host:port")
		}
		if hr.ContentLength != 0 {
			return Request{}, errors.New("CONNECT has no body")
		}
		return newRequest(user, host, port)
	}
	if hr.URL.Scheme != "http" || hr.URL.Opaque != "" || hr.URL.Host == "" {
		return Request{}, errors.New("this is a proxy: it takes http://host/path, and CONNECT for everything else")
	}
	port := hr.URL.Port()
	if port == "" {
		port = "80"
	}
	return newRequest(user, hr.URL.Hostname(), port)
}

func (s *service) logFailure(r Request, err error) {
	var refused *refusal
	s.cfg.Log(r, Outcome{Err: err, Refused: errors.As(err, &refused)})
}

// sayFailure answers why the connection failed.
func sayFailure(w http.ResponseWriter, err error) {
	text := excerpt.Line(err.Error(), 500)
	code := http.StatusBadGateway
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		w.Header().Set(RefusedHeader, text)
		code = http.StatusForbidden
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		code = http.StatusGatewayTimeout
	}
	http.Error(w, text, code)
}

// tunnel passes bytes on after CONNECT.
func (s *service) tunnel(w http.ResponseWriter, r Request, up net.Conn) {
	var out Outcome
	defer func() { s.cfg.Log(r, out) }()
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		out.Err = err
		return
	}
	defer func() { _ = c.Close() }()
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if _, out.Err = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); out.Err != nil {
		return
	}
	out.Sent, out.Received = s.relay(c, early, up)
}

// forward passes one HTTP request on, over a connection of its own: a connection
// that is shared would skip the check of the address. via is the proxy to which up leads; nil: it leads to
// the server. add is a credential for a server of https; nil: the server is one of http.
func (s *service) forward(w http.ResponseWriter, hr *http.Request, r Request, up net.Conn, via *url.URL, add *added) {
	counted := &countedConn{Conn: up, idle: s.cfg.Limits.Idle}
	var out Outcome
	usual := ":80"
	if add != nil {
		out.Credential, usual = add.credential, ":443"
	}
	defer func() {
		out.Sent, out.Received = counted.sent.Load(), counted.received.Load()
		s.cfg.Log(r, out)
	}()
	var taken atomic.Bool
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errors.New("the connection to the server has ended")
			}
			return counted, nil
		},
		Proxy:                  func(*http.Request) (*url.URL, error) { return via, nil },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: int64(s.cfg.Limits.HeaderBytes),
		TLSClientConfig:        &tls.Config{ServerName: r.Host, RootCAs: s.cfg.Roots, MinVersion: tls.VersionTLS12},
	}
	authority := r.String()
	if hr.URL.Port() == "" {
		authority = strings.TrimSuffix(authority, usual)
	}
	(&httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Host, p.Out.Host, p.Out.URL.User = authority, authority, nil
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := p.In.Header[name]; ok { // the command's own
					p.Out.Header[name] = v
				}
			}
			if add != nil {
				add.apply(p.Out)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(RefusedHeader)
			if add != nil {
				return add.mask(resp)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			out.Err = fmt.Errorf("pass a request on to %s: %w", r, err)
			sayFailure(w, out.Err)
		},
	}).ServeHTTP(w, hr)
}

// countedConn counts bytes and ends when nothing comes or goes for too long.
type countedConn struct {
	net.Conn
	idle           time.Duration
	sent, received atomic.Int64
}

func (c *countedConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.idle))
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.idle))
	c.sent.Add(int64(len(b))) // before the answer to it can be counted
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n - len(b)))
	return n, err
}
