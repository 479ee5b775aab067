package netproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// upstream returns the proxy through which a connection is made; nil: none. plain says that it is for a
// request of HTTP without TLS.
func (s *service) upstream(r Request, plain bool) (*url.URL, error) {
	if s.cfg.Upstream == nil {
		return nil, nil //nolint:nilnil // no proxy is used
	}
	to := &url.URL{Scheme: "https", Host: net.JoinHostPort(r.Host, strconv.Itoa(r.Port))}
	if plain {
		to.Scheme = "http"
	}
	via, err := s.cfg.Upstream(to)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the address of the proxy: %w (correct HTTP_PROXY and HTTPS_PROXY)", err)
	case via == nil || via.Scheme == "http" || via.Scheme == "https":
		return via, nil
	}
	return nil, fmt.Errorf("the proxy %s speaks no HTTP (HTTPS_PROXY takes http:// and https://)", via.Redacted())
}

// checkBehind refuses addresses as [service.checkAddress] does, of a host that a proxy connects to. That
// resolves names itself: those that cannot be resolved here are its own.
func (s *service) checkBehind(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, resolveBehind)
	defer cancel()
	resolved, err := s.resolve(ctx, r.Host)
	if err != nil {
		if _, bad := netip.ParseAddr(r.Host); bad != nil {
			return nil //nolint:nilerr // it is the proxy that knows the name
		}
		return err
	}
	for _, a := range resolved {
		if err := s.checkAddress(r, a); err != nil {
			return &refusal{r, err}
		}
	}
	return nil
}

// resolveBehind bounds the attempt to resolve a name where a proxy resolves it too.
const resolveBehind = 2 * time.Second

// dialUpstream connects to a proxy, without TLS.
func (s *service) dialUpstream(ctx context.Context, via *url.URL) (net.Conn, error) {
	port := via.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[via.Scheme]
	}
	c, err := s.cfg.Dial(ctx, "tcp", net.JoinHostPort(via.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("connect to the proxy %s: %w", via.Redacted(), err)
	}
	return c, nil
}

// through makes a connection to a host through a proxy.
func (s *service) through(ctx context.Context, via *url.URL, r Request) (_ net.Conn, err error) {
	c, err := s.dialUpstream(ctx, via)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if via.Scheme == "https" {
		secure := tls.Client(c, &tls.Config{ServerName: via.Hostname(), MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("connect to the proxy %s: %w", via.Redacted(), err)
		}
		c = secure
	}
	ask := &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Opaque: r.String()}, Host: r.String(), Header: http.Header{},
	}
	if user := via.User; user != nil {
		password, _ := user.Password()
		ask.Header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := ask.Write(c); err != nil {
		return nil, fmt.Errorf("ask the proxy %s for %s: %w", via.Redacted(), r, err)
	}
	reader := bufio.NewReaderSize(c, s.cfg.Limits.HeaderBytes)
	answer, err := http.ReadResponse(reader, ask)
	if err != nil {
		return nil, fmt.Errorf("ask the proxy %s for %s: %w", via.Redacted(), r, err)
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("the proxy %s refuses a connection to %s: %s", via.Redacted(), r, answer.Status)
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	early, err := reader.Peek(reader.Buffered())
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	return &afterConnect{Conn: c, early: early}, nil
}

// afterConnect is a connection of which a part was read with the answer of a proxy.
type afterConnect struct {
	net.Conn
	early []byte // only its reader uses it
}

func (c *afterConnect) Read(b []byte) (int, error) {
	if len(c.early) > 0 && len(b) > 0 {
		n := copy(b, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *afterConnect) CloseWrite() error { return closeWrite(c.Conn) }
