package web

import (
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/platform/httpserve"
)

const (
	codeLife  = 10 * time.Minute
	mostCodes = 64
)

// pairing is the right that a link gives to a browser.
type pairing struct {
	write bool
	until time.Time
}

// codes are the unused links. Each pairs one browser.
type codes struct {
	mu   sync.Mutex
	open map[string]pairing
}

// add returns the code of a new link; empty: too many are open.
func (c *codes) add(write bool, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for code, p := range c.open {
		if !now.Before(p.until) {
			delete(c.open, code)
		}
	}
	if len(c.open) >= mostCodes {
		return ""
	}
	code := rand.Text()
	c.open[code] = pairing{write, now.Add(codeLife)}
	return code
}

// take returns and removes a code.
func (c *codes) take(code string, now time.Time) (p pairing, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok = c.open[code]
	delete(c.open, code)
	return p, ok && now.Before(p.until)
}

type pairRequest struct {
	Code string `json:"code"` // of a link, or the token itself
}

type pairReply struct {
	Key string `json:"key,omitempty"` // for changes; empty: the browser may only read
}

// pair gives a browser with a code or the token its keys.
func (s *Server) pair(w http.ResponseWriter, r *http.Request) {
	req, ok := read[pairRequest](w, r)
	if !ok {
		return
	}
	p, known := s.codes.take(req.Code, s.Now())
	if httpserve.Same(req.Code, s.Token) {
		p, known = pairing{write: true}, true
	}
	if !known {
		refuse(w, http.StatusForbidden, "this link was used or has expired (open a new one: each pairs one browser, within 10 minutes)")
		return
	}
	before, _ := s.access.device(r)
	k, err := s.Devices.add(r.Context(), browserName(r.UserAgent()), p.write, before.ID, s.Now())
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.access.grant(w, r, k.id+"."+k.read)
	reply(w, pairReply{Key: k.change})
}

// logout ends the pairing of the browser of a request.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if d, ok := s.access.device(r); ok {
		if _, err := s.Devices.Revoke(r.Context(), d.ID); err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	s.access.grant(w, r, "")
	reply(w, struct{}{})
}

type revokeRequest struct {
	ID string `json:"id"`
}

// revoke ends the pairing of a device.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	req, ok := read[revokeRequest](w, r)
	if !ok {
		return
	}
	switch _, err := s.Devices.Revoke(r.Context(), req.ID); {
	case errors.Is(err, ErrNoDevice):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		refuse(w, http.StatusInternalServerError, err.Error())
	default:
		reply(w, struct{}{})
	}
}

type linkRequest struct {
	ReadOnly bool `json:"read_only"`
}

type linkReply struct {
	Path string `json:"path"`           // relative to the address of the page
	Code string `json:"code,omitempty"` // the whole link as a drawing of a QR code
}

// link makes a link for another browser.
func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	req, ok := read[linkRequest](w, r)
	if !ok {
		return
	}
	code := s.codes.add(!req.ReadOnly, s.Now())
	if code == "" {
		refuse(w, http.StatusTooManyRequests, "too many links are open (wait ten minutes)")
		return
	}
	a := linkReply{Path: linkPath(code)}
	if origin := r.Header.Get("Origin"); origin != "" { // guard has checked it
		if q, err := qrDrawn(origin + a.Path); err == nil {
			a.Code = s.views.text("qr", q)
		}
	}
	reply(w, a)
}

// linkPath has the code after the #, which is in no request and in no log of a proxy.
func linkPath(code string) string { return "/#pair=" + code }
