package a2aserver

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/platform/addresses"
)

const (
	maxPush   = 10 // configurations of a task
	maxSecret = 4 << 10
	pushTime  = 10 * time.Second
	pushTries = 5
	pushPause = time.Second // before the second try; doubled before each further one
)

// checkPush refuses a configuration by which nothing could be sent, or to where nothing may be. What a name
// leads to is checked when it is dialled.
func (s *Server) checkPush(p a2a.PushConfig) (a2a.PushConfig, error) {
	u, err := url.Parse(p.URL)
	bad := func(why string) (a2a.PushConfig, error) {
		return p, refusal(a2a.CodeParams, "push notification url %.200q: %s", p.URL, why)
	}
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || len(p.URL) > maxSecret:
		return bad("it cannot be read")
	case u.User != nil:
		return bad("it holds a name or password (use authentication)")
	case u.Scheme != "https" && (u.Scheme != "http" || !s.onMachine() || !isLocal(u.Hostname())):
		return bad("it is neither https nor, for a server of this machine only, http to this machine")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		if why := s.closed(ip); why != "" {
			return bad(why)
		}
	}
	secrets := []string{p.Token}
	if p.Auth != nil {
		secrets = append(secrets, p.Auth.Scheme, p.Auth.Credentials)
		if p.Auth.Scheme == "" {
			return bad("authentication.scheme is missing")
		}
	}
	for _, text := range secrets {
		if len(text) > maxSecret || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			return bad("its token or authentication cannot be part of a header")
		}
	}
	if p.ID == "" {
		p.ID = strings.ToLower(rand.Text())
	} else if !plainID(p.ID) {
		return bad("its id is no ID of printable characters")
	}
	p.Tenant = ""
	return p, nil
}

// onMachine reports whether clients of this server are on this machine.
func (s *Server) onMachine() bool { return s.cfg.URL == "" }

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// closed says why nothing is sent to an address; empty: it is.
func (s *Server) closed(ip netip.Addr) string {
	what := addresses.Special(ip)
	if what == "" || ip.Unmap().IsLoopback() && s.onMachine() {
		return ""
	}
	return fmt.Sprintf("%s belongs to %s", ip, what)
}

// createPush adds a configuration to a task, or replaces the one of its ID.
func (s *Server) createPush(agent string, p a2a.PushConfig) (*a2a.PushConfig, error) {
	one, err := s.find(agent, p.Task)
	if err != nil {
		return nil, err
	}
	if p, err = s.checkPush(p); err != nil {
		return nil, err
	}
	full, over := false, false
	err = one.change(func(sv *saved) {
		sv.Push = slices.DeleteFunc(sv.Push, func(old a2a.PushConfig) bool { return old.ID == p.ID })
		full, over = len(sv.Push) >= maxPush, sv.End != nil
		if !full && !over {
			sv.Push = append(sv.Push, p)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case over:
		return nil, refusal(a2a.CodeUnsupported, "task %s has ended", one.id)
	case full:
		return nil, refusal(a2a.CodeParams, "task %s has %d push notification configurations already", one.id, maxPush)
	}
	s.deliver(one)
	return &p, nil
}

func (s *Server) getPush(agent string, p a2a.PushRequest) (*a2a.PushConfig, error) {
	list, err := s.listPush(agent, p)
	if err != nil {
		return nil, err
	}
	for _, one := range list.Configs {
		if one.ID == p.ID {
			return &one, nil
		}
	}
	return nil, refusal(a2a.CodeTaskNotFound, "task %s has no push notification configuration %.80q", p.Task, p.ID)
}

func (s *Server) listPush(agent string, p a2a.PushRequest) (*a2a.PushList, error) {
	one, err := s.find(agent, p.Task)
	if err != nil {
		return nil, err
	}
	return &a2a.PushList{Configs: append([]a2a.PushConfig{}, one.state().Push...)}, nil
}

func (s *Server) deletePush(agent string, p a2a.PushRequest) error {
	one, err := s.find(agent, p.Task)
	if err != nil {
		return err
	}
	return one.change(func(sv *saved) {
		sv.Push = slices.DeleteFunc(sv.Push, func(old a2a.PushConfig) bool { return old.ID == p.ID })
	})
}

// deliver sends what becomes of a task to where its clients want it, until its end was sent. It starts nothing
// if there is nowhere to send it, or somebody sends it already.
func (s *Server) deliver(one *entry) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.saved.Push) == 0 || one.saved.Pushed || one.delivers || s.life.Err() != nil {
		return
	}
	one.delivers = true
	client := s.pusher()
	s.pushes.Go(func() { // ends with the task, or the server
		defer client.CloseIdleConnections()
		told := false             // of the end
		deaf := map[string]bool{} // configurations of which nobody took the last event
		_ = s.follow(s.life, one, func(v view, events []a2a.Event) bool {
			if events == nil {
				events = []a2a.Event{{Task: v.task(nil)}}
			}
			ended, taken := v.status.State.Terminal(), true
			for _, e := range events {
				for _, p := range one.state().Push {
					tries := pushTries
					if deaf[p.ID] && !ended { // the others are not to wait for it
						tries = 1
					}
					deaf[p.ID] = !s.post(client, p, e, tries)
					taken = taken && !deaf[p.ID]
				}
			}
			told = ended && (taken || s.life.Err() == nil) // else the next server sends it again
			return s.life.Err() == nil
		})
		one.mu.Lock()
		one.delivers = false
		one.mu.Unlock()
		if told {
			_ = one.change(func(sv *saved) { sv.Pushed = true }) // or the next server sends it again
		}
	})
}

// pusher is a client that reaches nothing but what may be reached, and follows no redirect.
func (s *Server) pusher() *http.Client {
	d := &net.Dialer{Timeout: pushTime, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if why := s.closed(at.Addr()); why != "" {
			return fmt.Errorf("push notification: %s", why)
		}
		return nil
	}}
	return &http.Client{
		Timeout: pushTime,
		Transport: &http.Transport{DialContext: d.DialContext, TLSHandshakeTimeout: pushTime,
			MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post sends one event, several times if need be, and reports whether it was taken. One that was not is given up: the
// state of the task tells the same.
func (s *Server) post(client *http.Client, p a2a.PushConfig, e a2a.Event, tries int) bool {
	data, err := json.Marshal(e)
	if err != nil {
		return false
	}
	for n := range tries {
		if n > 0 && pause(s.life, pushPause<<(n-1)) != nil {
			return false
		}
		if s.postOnce(client, p, data) {
			return true
		}
	}
	return false
}

func (s *Server) postOnce(client *http.Client, p a2a.PushConfig, data []byte) bool {
	req, err := http.NewRequestWithContext(s.life, http.MethodPost, p.URL, bytes.NewReader(data))
	if err != nil {
		return true // it will never work
	}
	req.Header.Set("Content-Type", a2a.PushType)
	req.Header.Set(a2a.VersionHeader, a2a.Version)
	if p.Token != "" {
		req.Header.Set(a2a.TokenHeader, p.Token)
	}
	if p.Auth != nil {
		req.Header.Set("Authorization", strings.TrimSpace(p.Auth.Scheme+" "+p.Auth.Credentials))
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again
	_ = resp.Body.Close()
	return resp.StatusCode/100 == 2
}
