package webtool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/addresses"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Bounds that cannot be set.
const (
	maxRedirects = 5
	maxKept      = 64       // pages in the cache
	maxKeptBytes = 16 << 20 // of their texts together
)

// Config is how pages are fetched. The zero Config is good.
type Config struct {
	MaxBytes int64         // of one page; 0: 5,000,000
	Timeout  time.Duration // of one page; 0: 30 s
	TTL      time.Duration // how long a page is kept; 0 or less: not at all

	// AllowPrivate lets pages of private networks and of this machine be read.
	AllowPrivate bool
}

// Fetcher fetches pages and keeps them for a while. Its methods may be called
// by several goroutines. It leaves no connection open.
type Fetcher struct {
	cfg    Config
	client *http.Client

	mu    sync.Mutex
	pages map[string]page // by address; guarded by mu
	size  int             // of their texts; guarded by mu
}

// page is the result of a fetch.
type page struct {
	code  int
	kind  string // media type
	text  string // harmless
	bytes int
	cut   bool
	at    time.Time
}

// NewFetcher makes a fetcher with an empty cache.
func NewFetcher(c Config) *Fetcher {
	c.MaxBytes, c.Timeout = cmp.Or(c.MaxBytes, 5_000_000), cmp.Or(c.Timeout, 30*time.Second)
	f := &Fetcher{cfg: c, pages: map[string]page{}}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !c.AllowPrivate {
		// Here the name is resolved already, so the checked address is the one
		// of the connection.
		dialer.Control = func(network, address string, _ syscall.RawConn) error { return public(network, address) }
	}
	f.client = &http.Client{
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: c.Timeout, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: follow,
	}
	return f
}

var errPrivate = errors.New("the address is in a private network or on this machine, and is not fetched")

// public refuses addresses that are not of the open internet.
func public(network, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") || !open(at.Addr()) {
		return errPrivate
	}
	return nil
}

func open(a netip.Addr) bool {
	return a.Zone() == "" && addresses.Special(a) == "" && !addresses.Benchmark(a)
}

// movedError is a redirect that is not followed.
type movedError struct{ to string }

func (e *movedError) Error() string { return "redirects to " + e.to }

// follow lets redirects lead to the same host only, since a person or a rule has
// agreed to this host.
func follow(next *http.Request, via []*http.Request) error {
	from, to := via[len(via)-1].URL, next.URL
	if len(via) > maxRedirects {
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	if _, err := address(to.String()); err != nil {
		return errors.New("it redirects to what is no address of a page")
	}
	safe := to.Scheme == from.Scheme && port(to) == port(from) ||
		from.Scheme == "http" && to.Scheme == "https" && port(from) == "80" && port(to) == "443"
	if !strings.EqualFold(to.Hostname(), from.Hostname()) || !safe {
		return &movedError{to.String()}
	}
	return nil
}

func port(u *url.URL) string {
	if u.Port() == "" && u.Scheme == "https" {
		return "443"
	}
	return cmp.Or(u.Port(), "80")
}

// get returns a page from the cache or from its host.
func (f *Fetcher) get(ctx context.Context, u *url.URL) (p page, cached bool, err error) {
	key := u.String()
	if p, ok := f.kept(key); ok {
		return p, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, key, nil)
	if err != nil {
		return page{}, false, err
	}
	req.Header.Set("User-Agent", "drover")
	req.Header.Set("Accept", "text/html, text/plain, application/json, application/xml, text/*;q=0.9, */*;q=0.1")
	resp, err := f.client.Do(req)
	if err != nil {
		return page{}, false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return page{}, false, fmt.Errorf("the host answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	if p, err = f.read(resp); err != nil {
		return page{}, false, err
	}
	f.keep(key, p)
	return p, false, nil
}

func (f *Fetcher) read(resp *http.Response) (page, error) {
	kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	if kind != "" && !readable(kind) {
		return page{}, fmt.Errorf("it is %.80s, not text", kind)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, f.cfg.MaxBytes+1))
	if err != nil {
		return page{}, err
	}
	p := page{code: resp.StatusCode, kind: kind, at: time.Now(), cut: int64(len(data)) > f.cfg.MaxBytes}
	if p.cut {
		data = data[:f.cfg.MaxBytes]
	}
	p.bytes = len(data)
	if kind == "" {
		p.kind, _, _ = strings.Cut(http.DetectContentType(data), ";")
	}
	text := decode(data, params["charset"])
	if strings.ContainsRune(text[:min(len(text), 8192)], 0) || !readable(p.kind) {
		return page{}, errors.New("it is binary, not text")
	}
	if p.kind == "text/html" || p.kind == "application/xhtml+xml" {
		text = htmlText(text, resp.Request.URL)
	}
	p.text = excerpt.Visible(strings.ReplaceAll(text, "\r\n", "\n"))
	return p, nil
}

func readable(kind string) bool {
	if strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") ||
		strings.HasSuffix(kind, "+xml") && kind != "image/svg+xml" {
		return true
	}
	switch kind {
	case "application/json", "application/xml", "application/javascript", "application/x-javascript",
		"application/x-ndjson",
		"application/yaml", "application/x-yaml", "application/toml", "application/x-sh":
		return true
	}
	return false
}

// decode converts UTF-8 or Latin-1 to text, and other bytes as far as they can be
// read.
func decode(data []byte, charset string) string {
	text := strings.TrimPrefix(string(data), "\ufeff")
	if utf8.ValidString(text) {
		return text
	}
	switch strings.ToLower(charset) {
	case "iso-8859-1", "latin1", "windows-1252", "iso-8859-15":
		var b strings.Builder
		for _, c := range data {
			b.WriteRune(rune(c))
		}
		return b.String()
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

func (f *Fetcher) kept(key string) (page, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.pages[key]
	if ok && time.Since(p.at) >= f.cfg.TTL {
		f.drop(key)
		return page{}, false
	}
	return p, ok
}

// keep puts a page into the cache, and takes the oldest out until it fits.
func (f *Fetcher) keep(key string, p page) {
	if f.cfg.TTL <= 0 || len(p.text) > maxKeptBytes/4 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
	for len(f.pages) >= maxKept || f.size+len(p.text) > maxKeptBytes {
		oldest := ""
		for k, other := range f.pages {
			if oldest == "" || other.at.Before(f.pages[oldest].at) {
				oldest = k
			}
		}
		f.drop(oldest)
	}
	f.pages[key] = p
	f.size += len(p.text)
}

// drop is called with mu held.
func (f *Fetcher) drop(key string) {
	f.size -= len(f.pages[key].text)
	delete(f.pages, key)
}
