package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// writeHeader has the key of a request that changes something. A page of another site cannot send it.
const writeHeader = "X-Drover-Key"

// policy lets a page load what this server serves, and nothing else. No script stands in a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// access decides who may read and who may write. Both keys follow from the token, so that pages stay
// valid when the server starts again, and neither leads to the other or to the token.
type access struct {
	token       string
	cookie      string // its name, with the port: browsers give the cookies of a machine to all its ports
	read, write string
	hosts       []string
}

func newAccess(token, port string, hosts []string) access {
	return access{token: token, cookie: "drover_read_" + port, read: keyOf(token, "read"), write: keyOf(token, "write"),
		hosts: hosts}
}

func keyOf(token, use string) string {
	h := hmac.New(sha256.New, []byte(token))
	h.Write([]byte("drover page: " + use))
	return hex.EncodeToString(h.Sum(nil))
}

func same(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// guard answers requests that are ours, and refuses those that name another host or come from the
// page of another site.
func (a access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if why := a.foreign(r); why != "" {
			refuse(w, http.StatusForbidden, why)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		next.ServeHTTP(w, r)
	})
}

// foreign says why a request is not from a page of this server; empty: it is.
func (a access) foreign(r *http.Request) string {
	if !a.known(r.Host) {
		return fmt.Sprintf("the host %.100q is not this server (open the address that drover serve prints, or add --host)", r.Host)
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host != r.Host {
			return fmt.Sprintf("the origin %.100q is not this server", origin)
		}
	}
	site := r.Header.Get("Sec-Fetch-Site")
	moves := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet // a link was clicked
	if site != "" && site != "same-origin" && site != "none" && !moves {
		return "the request comes from a page of another site"
	}
	return ""
}

// known reports whether a host, with or without a port, is this machine or one that the user named.
func (a access) known(hostport string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback() || slices.Contains(a.hosts, host)
}

// reads reports whether the request may read: it has the cookie or, from a program, the token.
func (a access) reads(r *http.Request) bool {
	if _, token, ok := strings.Cut(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(strings.TrimSpace(token), a.token)
	}
	c, err := r.Cookie(a.cookie)
	return err == nil && same(c.Value, a.read)
}

// writes reports whether the request may change something. The cookie alone never suffices.
func (a access) writes(r *http.Request) bool {
	if _, token, ok := strings.Cut(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(strings.TrimSpace(token), a.token)
	}
	return a.reads(r) && same(r.Header.Get(writeHeader), a.write)
}

// reader asks for the key of reading.
func (a access) reader(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.reads(r) {
			refuse(w, http.StatusUnauthorized, "this browser is not paired (open the link that drover serve prints)")
			return
		}
		next(w, r)
	}
}

// writer asks for the key of writing.
func (a access) writer(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.writes(r) {
			refuse(w, http.StatusForbidden, "this browser may only read (pair it with a link that drover serve prints)")
			return
		}
		next(w, r)
	}
}

// grant lets the browser of a request read from now on.
func (a access) grant(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: a.read, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: 90 * 24 * 3600})
}
