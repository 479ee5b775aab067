package netproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Credential is what the proxy adds to the requests of commands to a host, in a header that it replaces. For this it
// ends their TLS, and begins its own to the host, whose certificate it checks.
type Credential struct {
	Name string      // for people
	TLS  *tls.Config // by which commands take the proxy for the host

	// Header returns the header, and what of its value must not come back: it is masked in answers.
	Header func(context.Context) (name, value string, secrets []string, err error)
}

// within is where a connection leads of which the proxy has ended the TLS.
type within struct {
	to         Request
	credential *Credential
}

// intercept serves the requests that come in TLS after CONNECT.
func (s *service) intercept(w http.ResponseWriter, c *conn, to within) {
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = raw.Close() }()
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if _, err := io.WriteString(raw, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	secure := tls.Server(&afterConnect{Conn: raw, early: early}, to.credential.TLS)
	inner := &conn{Conn: secure, user: c.user, within: &to, ended: make(chan struct{})}
	select {
	case s.forHTTP.conns <- inner:
		<-inner.ended
	case <-s.ctx.Done():
	}
}

// serveWithin passes one request on with the credential.
func (s *service) serveWithin(w http.ResponseWriter, hr *http.Request, to within) {
	host, port, named := strings.Cut(hr.Host, ":")
	if !named {
		port = "443"
	}
	switch r, err := newRequest(to.to.User, host, port); {
	case err != nil, r != to.to: // another host at the same server would get the credential
		http.Error(w, "the request is for another host than its connection", http.StatusMisdirectedRequest)
		return
	case hr.Method == http.MethodConnect, hr.Method == http.MethodTrace, hr.URL.IsAbs():
		http.Error(w, "the proxy does not pass this on with a credential", http.StatusMethodNotAllowed)
		return
	}
	up, _, err := s.connect(hr.Context(), to.to, false)
	if err != nil {
		s.logFailure(to.to, err)
		sayFailure(w, err)
		return
	}
	defer func() { _ = up.Close() }()
	name, value, secrets, err := to.credential.Header(hr.Context())
	if err != nil {
		err = fmt.Errorf("get the credential %s: %w", to.credential.Name, err)
		s.logFailure(to.to, err)
		sayFailure(w, err)
		return
	}
	s.forward(w, hr, to.to, up, nil, &added{to.credential.Name, name, value, append(secrets, value)})
}

// added is the credential of one request.
type added struct {
	credential, header, value string
	secrets                   []string
}

// apply adds the credential to a request. The answer must be one in which it can be found.
func (a *added) apply(out *http.Request) {
	out.URL.Scheme = "https"
	out.Header.Set(a.header, a.value)
	out.Header.Set("Accept-Encoding", "identity")
	out.Header.Del("Range") // an answer in parts could have a part of it at the end of each
}

// mask replaces the credential in an answer by as many asterisks.
func (a *added) mask(resp *http.Response) error {
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return errors.New("the server compresses its answer though it was asked not to, so that it cannot be looked " +
			"through for the credential")
	}
	for _, values := range []http.Header{resp.Header, resp.Trailer} {
		for _, list := range values {
			for i := range list {
				list[i] = string(a.masked([]byte(list[i])))
			}
		}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &masking{ReadCloser: resp.Body, added: a}
	}
	return nil
}

func (a *added) masked(b []byte) []byte {
	for _, s := range a.secrets {
		if len(s) >= leastSecret {
			b = bytes.ReplaceAll(b, []byte(s), bytes.Repeat([]byte("*"), len(s)))
		}
	}
	return b
}

// leastSecret is how long a text must be to be masked: a shorter one is in any answer by chance.
const leastSecret = 8

// masking is the body of an answer without the credential. It holds back what could be the beginning of it.
type masking struct {
	io.ReadCloser
	added *added
	held  []byte // read and not returned yet
	ready int    // of held: masked, and no part of a secret
	err   error
}

func (m *masking) Read(p []byte) (int, error) {
	for m.ready == 0 && m.err == nil {
		chunk := make([]byte, 32<<10)
		var n int
		n, m.err = m.ReadCloser.Read(chunk)
		m.held = m.added.masked(append(m.held, chunk[:n]...))
		m.ready = len(m.held)
		if m.err == nil {
			m.ready -= m.added.begun(m.held)
		}
	}
	n := copy(p, m.held[:m.ready])
	m.held, m.ready = m.held[n:], m.ready-n
	if n == 0 && m.ready == 0 {
		return 0, m.err
	}
	return n, nil
}

// begun is how many bytes at the end could be the beginning of a secret.
func (a *added) begun(b []byte) (most int) {
	for _, s := range a.secrets {
		for n := min(len(s)-1, len(b)); n > most; n-- {
			if bytes.HasSuffix(b, []byte(s[:n])) {
				most = n
			}
		}
	}
	return most
}
