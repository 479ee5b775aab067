package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/drover-dev/drover/internal/platform/httpserve"
)

// writeHeader is the header with the key for changes. A page of another site cannot send it.
const writeHeader = "X-Drover-Key"

// policy lets a page load files of this server only, and forbids scripts in the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// access decides who may read and who may write. Both keys are derived from the token, so that pages stay valid after a
// restart; neither reveals the other or the token.
type access struct {
	token       string
	cookie      string // the name, with the port: browsers share the cookies of a machine between its ports
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

// guard refuses requests that name another host or come from the page of another site.
func (a access) guard(next http.Handler) http.Handler {
	guarded := httpserve.Guard(a.hosts, next, func(w http.ResponseWriter, why string) {
		refuse(w, http.StatusForbidden, why)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		guarded.ServeHTTP(w, r)
	})
}

// reads reports whether the request may read: it has the cookie or, from a program, the token.
func (a access) reads(r *http.Request) bool {
	if token, ok := httpserve.Bearer(r); ok {
		return httpserve.Same(token, a.token)
	}
	c, err := r.Cookie(a.cookie)
	return err == nil && httpserve.Same(c.Value, a.read)
}

// writes reports whether the request may change something. The cookie alone never suffices.
func (a access) writes(r *http.Request) bool {
	if token, ok := httpserve.Bearer(r); ok {
		return httpserve.Same(token, a.token)
	}
	return a.reads(r) && httpserve.Same(r.Header.Get(writeHeader), a.write)
}

// reader requires the key for reading.
func (a access) reader(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.reads(r) {
			refuse(w, http.StatusUnauthorized, "this browser is not paired (open the link that drover serve prints)")
			return
		}
		next(w, r)
	}
}

// writer requires the key for changes.
func (a access) writer(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.writes(r) {
			refuse(w, http.StatusForbidden, "this browser may only read (pair it with a link that drover serve prints)")
			return
		}
		next(w, r)
	}
}

// grant gives the browser of a request the key for reading.
func (a access) grant(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: a.read, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: 90 * 24 * 3600})
}
