package web

import (
	"net/http"
	"strings"

	"github.com/drover-dev/drover/internal/platform/httpserve"
)

// writeHeader is the header with the key for changes. A page of another site cannot send it.
const writeHeader = "X-Drover-Key"

// policy lets a page load files of this server only, and forbids scripts in the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// access decides who may read and who may write: a program by the token, a browser by the keys that it got when it
// was paired. They stay valid after a restart.
type access struct {
	token   string
	cookie  string // the name, with the port: browsers share the cookies of a machine between its ports
	devices Devices
	hosts   []string
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

// device is the browser of a request, if it is paired.
func (a access) device(r *http.Request) (Device, bool) {
	c, err := r.Cookie(a.cookie)
	if err != nil {
		return Device{}, false
	}
	return a.devices.find(c.Value)
}

// reads reports whether the request may read: it has the cookie or, from a program, the token.
func (a access) reads(r *http.Request) bool {
	if token, ok := httpserve.Bearer(r); ok {
		return httpserve.Same(token, a.token)
	}
	_, ok := a.device(r)
	return ok
}

// writes reports whether the request may change something. The cookie alone never suffices.
func (a access) writes(r *http.Request) bool {
	if token, ok := httpserve.Bearer(r); ok {
		return httpserve.Same(token, a.token)
	}
	d, ok := a.device(r)
	return ok && d.Writes && httpserve.Same(a.devices.digest(r.Header.Get(writeHeader)), d.Change)
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

// grant gives the browser of a request its key for reading; an empty one takes it away. Where the page is reached by
// https the browser sends it by nothing else. The guard has checked the origin.
func (a access) grant(w http.ResponseWriter, r *http.Request, key string) {
	c := &http.Cookie{Name: a.cookie, Value: key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: strings.HasPrefix(r.Header.Get("Origin"), "https://"), MaxAge: 90 * 24 * 3600}
	if key == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}
