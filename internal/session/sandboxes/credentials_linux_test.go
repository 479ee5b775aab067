package sandboxes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// host is a server of https that records what it gets, and echoes it.
type host struct {
	*httptest.Server
	port string

	mu  sync.Mutex
	got []string // Authorization
}

func (h *host) last() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.got) == 0 {
		return ""
	}
	return h.got[len(h.got)-1]
}

// newHost serves localhost with a certificate of an authority of the tests.
func newHost(t *testing.T) (*host, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	v := &vault{key: key}
	ca := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := v.sign(ca, key)
	if err != nil {
		t.Fatal(err)
	}
	if v.authority, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	v.leaves = map[string]*tls.Config{}
	config, err := v.leaf("localhost")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(v.authority)
	h := &host{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		h.mu.Lock()
		h.got = append(h.got, auth)
		h.mu.Unlock()
		w.Header().Set("X-Echo", auth)
		w.Header().Set("X-Host", r.Host)
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "https://elsewhere.invalid/?t="+auth, http.StatusFound)
			return
		case "/slow": // the secret in pieces
			for i := range auth {
				_, _ = io.WriteString(w, auth[i:i+1])
				_ = http.NewResponseController(w).Flush()
			}
			return
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
		}
		_, _ = fmt.Fprintf(w, "path %s auth [%s] header %v\n", r.URL, auth, r.Header)
		_, _ = io.Copy(w, r.Body)
	}))
	h.TLS = config.Clone()
	h.StartTLS()
	t.Cleanup(h.Close)
	if _, h.port, err = net.SplitHostPort(h.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return h, roots
}

// ran runs a line as the session does, and returns what it prints.
func ran(t *testing.T, s *Sandboxes, work, line string, env []string) (string, bool) {
	t.Helper()
	start, err := s.Command(Wish{Folders: []string{work}, Line: line})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := process.Command{Args: []string{"bash", "-c", line}, Dir: work, Env: env, Stdout: w, Stderr: w}
	start.Apply(&c)
	g, err := process.StartGroup(c)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	out := make(chan string, 1)
	go func() { data, _ := io.ReadAll(r); out <- string(data) }()
	ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	exit, err := g.Wait(ctx)
	g.End(context.WithoutCancel(ctx), process.Ending{})
	g.Reap()
	return <-out, err == nil && exit.Code == 0
}

// Commands use a credential at its host, and get it nowhere.
func TestCredentials(t *testing.T) {
	theSecret := rand.Text()
	h, roots := newHost(t)
	c := config(t)
	file := filepath.Join(folder(t, map[string]string{"token": theSecret + "\n"}), "token")
	var told []string
	c.Report = func(text string) { told = append(told, text) }
	c.Scratch, c.Roots = filepath.Join(folder(t, nil), "scratch"), roots
	c.Domains = []string{"127.0.0.1:" + h.port, "localhost:" + h.port}
	value := func(context.Context) (string, error) {
		data, err := os.ReadFile(file)
		return string(data), err
	}
	at := "localhost:" + h.port
	c.Credentials = []Credential{{Name: "git", Hosts: []string{at}, Env: []string{"GH_TOKEN", "NPM_TOKEN"}, Hidden: file, Value: value}}
	s := New(c)
	defer s.Close()
	if !s.Whole("") {
		t.Skip("SKIPPED: this machine has no namespaces or no Landlock of ABI 6")
	}
	work := folder(t, map[string]string{".npmrc": "//" + at + "/:_authToken=${NPM_TOKEN}\n"})
	env := append(os.Environ(), "GH_TOKEN="+theSecret, "NPM_TOKEN="+theSecret)
	const direct = "unset NO_PROXY no_proxy; "
	url := "https://" + at

	// It is used.
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+theSecret))
	for name, uses := range map[string]string{
		"curl":      "curl -sSf " + url + "/a",
		"with its":  `curl -sSf -H "Authorization: token $GH_TOKEN" ` + url + "/a",
		"posting":   "curl -sSf -d body " + url + "/a | grep body",
		"two":       "curl -sSf " + url + "/a " + url + "/b",
		"python":    `python3 -c 'import urllib.request as u; print(u.urlopen("` + url + `/p").read())'`,
		"http 1.0":  "curl -sSf -0 " + url + "/a",
		"big":       "[ $(head -c 3000000 /dev/zero | curl -sSf --data-binary @- " + url + "/big | wc -c) -gt 3000000 ]",
		"tls check": "! curl -sSf --cacert /etc/ssl/certs/ca-certificates.crt " + url + "/a 2>/dev/null",
		"gitclient": "GIT_TERMINAL_PROMPT=0 git ls-remote " + url + "/r.git 2>&1 | grep -q 'not valid'",
	} {
		out, ok := ran(t, s, work, direct+uses, env)
		if !ok || name != "tls check" && h.last() != "Bearer "+theSecret {
			t.Errorf("%s: %v, the host got %q\n%s", name, ok, h.last(), out)
		}
	}
	s.Close()
	c.Credentials[0].User = "x-access-token"
	s = New(c)
	defer s.Close()
	if out, ok := ran(t, s, work, direct+"curl -sSf "+url+"/basic", env); !ok || h.last() != basic {
		t.Errorf("basic: %v, the host got %q\n%s", ok, h.last(), out)
	}

	for line, want := range map[string]string{
		"curl -s -H 'Host: other.invalid' " + url + "/a": "for another host", "curl -s -X TRACE " + url + "/a": "does not pass this on",
	} {
		if out, _ := ran(t, s, work, direct+line, env); !strings.Contains(out, want) {
			t.Errorf("%s: %s", line, out)
		}
	}
	pid := os.Getpid()
	attempts := []string{
		// The environment, of itself and of others.
		"env", "printenv GH_TOKEN", "printenv NPM_TOKEN", "set", "export -p", "echo $GH_TOKEN", "cat /proc/self/environ | tr '\\0' '\\n'",
		fmt.Sprintf("cat /proc/%d/environ", pid), fmt.Sprintf("cat /proc/%d/cmdline", pid), "cat /proc/[0-9]*/environ", "cat /proc/1/environ",
		"sh -c env", "env -i bash -c env", "bash -lc env", "setsid env", "nohup env", "python3 -c 'import os; print(os.environ)'", "(env &) ; wait",
		"cat /proc/$PPID/environ", "ps auxe", "ps -eo args", "strings /proc/*/environ",
		// Files and memory.
		"cat " + file, "cp " + file + " x; cat x", "ln " + file + " x; cat x", "ln -s " + file + " y; cat y", "tar c " + filepath.Dir(file),
		"curl -sS file://" + file, "python3 -c 'print(open(\"" + file + "\").read())'", "cat /proc/self/root" + file,
		fmt.Sprintf("cat /proc/%d/root%s", pid, file), fmt.Sprintf("cat /proc/%d/fd/*", pid), fmt.Sprintf("ls -l /proc/%d/fd", pid),
		fmt.Sprintf("dd if=/proc/%d/mem bs=1M count=1", pid), fmt.Sprintf("cat /proc/%d/maps", pid), "cat $SSL_CERT_FILE", "cat $(dirname $SSL_CERT_FILE)/*",
		"grep -r " + theSecret[:6] + " /tmp /var/tmp", "find / -xdev -name '*token*' -newermt 2020-01-01 -exec cat {} + 2>/dev/null | head -c 100000",
		fmt.Sprintf("gdb -p %d -batch", pid), fmt.Sprintf("python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16,%d,0,0))'", pid),
		// Cores.
		"ulimit -c unlimited; bash -c 'kill -SEGV $$'; cat core* 2>/dev/null", fmt.Sprintf("gcore %d; cat core*", pid), fmt.Sprintf("kill -SEGV %d", pid+1000000),
		// The proxy and its host.
		"echo $HTTPS_PROXY", "curl -sv " + url + "/a", "curl -s " + url + "/a --trace-ascii -", "curl -si " + url + "/a", "curl -s -L " + url + "/redirect",
		"curl -si " + url + "/redirect", "curl -s " + url + "/slow", "curl -s " + url + "/gzip --output -", "curl -s --compressed " + url + "/a",
		"curl -s -X TRACE " + url + "/a", "curl -s -r 0-40 " + url + "/a; curl -s -r 20-80 " + url + "/a", "curl -s -H 'Host: other.invalid' " + url + "/a",
		"curl -s -H 'Host: 127.0.0.1:" + h.port + "' " + url + "/a", "curl -sk https://127.0.0.1:" + h.port + "/a", "curl -s http://" + at + "/a",
		"curl -sk -x socks5h://${ALL_PROXY#*//} " + url + "/a", "curl -s --connect-to ::127.0.0.1:" + h.port + " " + url + "/a",
		"curl -s " + url + "/%0d%0aX:y", "curl -s -H 'Connection: Authorization' " + url + "/a", "curl -s -H 'Connection: upgrade' -H 'Upgrade: websocket' " + url + "/a",
		"curl -s -H 'Authorization:' " + url + "/a", "curl -s -H 'Authorization: Bearer x' -H 'Authorization: Bearer y' " + url + "/a",
		"curl -s -H 'Transfer-Encoding: chunked' -d x " + url + "/a", "curl -s -H 'TE: trailers' " + url + "/a", "openssl s_client -proxy 127.0.0.1:1 -connect " + at,
		"curl -s --http2 " + url + "/a", "for i in 1 2 3 4; do curl -s " + url + "/a & done; wait", "GIT_TRACE_CURL=1 GIT_TERMINAL_PROMPT=0 git ls-remote " + url + "/r.git",
		"git credential fill <<< 'url=" + url + "'", "cat .npmrc; npm config ls -l 2>/dev/null", "SSLKEYLOGFILE=k curl -s " + url + "/a; cat k",
	}
	if len(attempts) < 60 {
		t.Errorf("%d attempts", len(attempts))
	}
	encoded := []string{theSecret, base64.StdEncoding.EncodeToString([]byte("x-access-token:" + theSecret)), theSecret[4:]}
	for _, line := range attempts {
		out, _ := ran(t, s, work, direct+line, env)
		if slices.ContainsFunc(encoded, func(e string) bool { return strings.Contains(out, e) }) {
			t.Errorf("%s\n%s", line, out)
		}
	}
	for _, dir := range []string{work, c.Scratch, c.Home} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(theSecret)) {
				t.Errorf("%s has it", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	s.Close()
	all := strings.Join(told, "\n")
	if !strings.Contains(all, "uses of the credential git for "+at+": ") || strings.Contains(all, theSecret) {
		t.Errorf("told:\n%s", all)
	}
}
