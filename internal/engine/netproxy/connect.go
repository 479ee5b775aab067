package netproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/drover-dev/drover/internal/platform/addresses"
)

// refusal is a connection that rules or a person do not allow.
type refusal struct {
	to  Request
	why error
}

func (e *refusal) Error() string { return fmt.Sprintf("connection to %s refused: %v", e.to, e.why) }
func (e *refusal) Unwrap() error { return e.why }

// connect makes a connection if it is allowed. A name is resolved only after that, since
// the question for it would reach a server of whoever owns the name. plain says that the connection is
// for a request of HTTP: through a proxy upstream, which is returned then, that is made to the proxy.
func (s *service) connect(ctx context.Context, r Request, plain bool) (_ net.Conn, via *url.URL, err error) {
	if err := s.decide(ctx, r); err != nil {
		return nil, nil, &refusal{r, err}
	}
	if via, err = s.upstream(r, plain); err != nil {
		return nil, nil, err
	}
	if via == nil {
		c, err := s.direct(ctx, r)
		return c, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limits.Dial)
	defer cancel()
	if err := s.checkBehind(ctx, r); err != nil {
		return nil, nil, err
	}
	if plain {
		c, err := s.dialUpstream(ctx, via)
		return c, via, err
	}
	c, err := s.through(ctx, via, r)
	return c, via, err
}

// direct makes a connection that is allowed.
func (s *service) direct(ctx context.Context, r Request) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limits.Dial)
	defer cancel()
	resolved, err := s.resolve(ctx, r.Host)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", r, err)
	}
	var addresses []netip.Addr
	var refused error
	for _, a := range resolved {
		if err := s.checkAddress(r, a); err != nil {
			refused = err
			continue
		}
		addresses = append(addresses, a)
	}
	if len(addresses) == 0 {
		return nil, &refusal{r, refused}
	}
	var failed error
	for _, a := range addresses {
		c, err := s.cfg.Dial(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(r.Port)))
		if err == nil {
			return c, nil
		}
		if failed == nil || !errors.Is(err, context.DeadlineExceeded) {
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("connect to %s: %w", r, failed)
}

const maxAddresses = 16 // of a name that are tried

// resolve returns at least one address, without zones.
func (s *service) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if isLocalhost(host) {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	found, err := s.cfg.Resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range found {
		if a = a.Unmap().WithZone(""); a.IsValid() && !slices.Contains(out, a) && len(out) < maxAddresses {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the name %s has no address", host)
	}
	return out, nil
}

// checkAddress refuses an address that is not of the open internet and that no rule names.
func (s *service) checkAddress(r Request, a netip.Addr) error {
	what := addresses.Special(a)
	if what == "" {
		own, err := s.own()
		if err != nil {
			return fmt.Errorf("list the addresses of this machine: %w", err)
		}
		if !slices.Contains(own, a) {
			return nil
		}
		what = "this machine"
	}
	literal := Request{User: r.User, Host: a.String(), Port: r.Port}
	if what != addresses.Metadata && s.cfg.Private(r) || s.cfg.Private(literal) {
		return nil
	}
	return fmt.Errorf("%s belongs to %s (%s)", a, what, s.cfg.remedy(literal))
}

// remedy says what would allow a request.
func (c Config) remedy(r Request) string {
	if c.Setting == "" {
		return fmt.Sprintf("a rule %s would allow it", r)
	}
	return fmt.Sprintf("%s in the setting %s would allow it", r, c.Setting)
}

func ownAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, n := range list {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}

// topic is what an open question is about.
type topic struct {
	by *service
	Request
}

// question is a call of Allow that has not returned.
type question struct {
	waiting int // connections; guarded by Proxy.mu
	cancel  context.CancelCauseFunc
	done    chan struct{}
	why     error // read after done was closed
}

var errNobodyWaits = errors.New("the command has closed the connection")

// decide asks the rules and then Allow. Requests for the same share one question.
func (s *service) decide(ctx context.Context, r Request) error {
	if allowed, _ := s.cfg.Match(r); allowed {
		return nil
	}
	if s.cfg.Allow == nil {
		return fmt.Errorf("no rule allows it (%s)", s.cfg.remedy(r))
	}
	q, err := s.question(r)
	if err != nil {
		return err
	}
	select {
	case <-q.done:
		return q.why
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.waiting--; q.waiting == 0 {
			q.cancel(errNobodyWaits)
			s.forget(topic{s, r}, q)
		}
		return context.Cause(ctx)
	}
}

// question joins the open question for a request, or opens one.
func (s *service) question(r Request) (*question, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.questions[topic{s, r}]; q != nil {
		q.waiting++
		return q, nil
	}
	open := 0
	for other := range s.questions {
		if other.User == r.User {
			open++
		}
	}
	if open >= s.cfg.Limits.Questions {
		return nil, fmt.Errorf("%d questions about other hosts wait for an answer (answer them first; %s)", open, s.cfg.remedy(r))
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	q := &question{waiting: 1, cancel: cancel, done: make(chan struct{})}
	s.questions[topic{s, r}] = q
	s.running.Go(func() {
		ctx, stop := context.WithTimeoutCause(ctx, s.cfg.Limits.Question,
			fmt.Errorf("nobody answered within %v (%s)", s.cfg.Limits.Question, s.cfg.remedy(r)))
		defer stop()
		err := s.cfg.Allow(ctx, r)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		q.why = err
		s.forget(topic{s, r}, q)
		close(q.done)
		cancel(nil)
	})
	return q, nil
}

// forget is called with mu held.
func (p *Proxy) forget(t topic, q *question) {
	if p.questions[t] == q {
		delete(p.questions, t)
	}
}
