package sandboxes

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/netproxy"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Credential is a secret of the user that commands use and do not get.
type Credential struct {
	Name   string
	Hosts  []string // with https; a port other than 443 follows a colon
	Env    []string // variables of commands that have a placeholder
	Hidden string   // file that has it; empty: none
	User   string   // for Basic; empty: it is a Bearer token
	Header string   // that has it alone, such as X-Api-Key; empty: Authorization

	// Value returns the secret. It is called outside of the sandbox, when a request needs it.
	Value func(context.Context) (string, error)
}

// How long a secret is kept until it is asked for anew, and how long the authority of a room is valid.
const (
	secretAge    = 5 * time.Minute
	authorityAge = 390 * 24 * time.Hour
)

// vault adds credentials to the requests of commands. Its authority signs for the hosts of the credentials only, its
// key is in the memory of this process, and only programs of the room trust it.
type vault struct {
	all  map[string]*Credential // by host and port
	file string                 // certificates that commands trust: those of the machine, and the authority
	vars []string

	roots     *x509.CertPool // by which the hosts are checked; nil: those of the system
	authority *x509.Certificate
	key       *ecdsa.PrivateKey

	asking sync.Mutex        // held while a secret is asked for, which may take a while
	values map[string]secret // by name; guarded by asking

	mu     sync.Mutex
	leaves map[string]*tls.Config // guarded by mu
	used   map[string]int         // by name and host; guarded by mu
}

type secret struct {
	text string
	at   time.Time
}

// openVault makes the authority of a room. certificates are those of the machine.
func openVault(all []Credential, dir string, certificates []byte) (*vault, error) {
	v := &vault{all: map[string]*Credential{}, leaves: map[string]*tls.Config{}, values: map[string]secret{},
		used: map[string]int{}}
	var names []string
	for _, c := range all {
		for _, h := range c.Hosts {
			host, port, _ := strings.Cut(strings.ToLower(h), ":")
			if _, err := netip.ParseAddr(host); err == nil || host == "" || strings.ContainsAny(host, "*/@ ") {
				return nil, fmt.Errorf("setting sandbox.credentials.%s: %.100q is no host name", c.Name, h)
			}
			at := host + ":" + cmp.Or(port, "443")
			if v.all[at] != nil {
				return nil, fmt.Errorf("setting sandbox.credentials.%s: %s has the credential %s already", c.Name, at, v.all[at].Name)
			}
			v.all[at], names = &c, append(names, host)
		}
		for _, name := range c.Env {
			v.vars = append(v.vars, name+"=drover-credential-"+c.Name)
		}
	}
	var err error
	if v.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make the authority of the sandbox: %w", err)
	}
	der, err := v.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "Drover sandbox"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, PermittedDNSDomainsCritical: true, PermittedDNSDomains: names,
	}, v.key)
	if err == nil {
		v.authority, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("make the authority of the sandbox: %w", err)
	}
	v.file = filepath.Join(dir, "certificates-"+strings.ToLower(rand.Text()[:8])+".pem")
	trusted := append(slices.Clone(certificates), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	if err := saferoot.Near(v.file).Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the authority of the sandbox: %w", err)
	}
	if err := home.WriteAtomic(v.file, trusted); err != nil {
		return nil, fmt.Errorf("make the authority of the sandbox: %w", err)
	}
	for _, name := range []string{"SSL_CERT_FILE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
		"CURL_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT"} {
		v.vars = append(v.vars, name+"="+v.file)
	}
	return v, nil
}

// sign makes a certificate of the authority, or the authority itself.
func (v *vault) sign(c *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = number, time.Now().Add(-time.Hour), time.Now().Add(authorityAge)
	return x509.CreateCertificate(rand.Reader, c, cmp.Or(v.authority, c), &key.PublicKey, v.key)
}

// leaf is how the proxy answers as a host.
func (v *vault) leaf(host string) (*tls.Config, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.leaves[host]; c != nil {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := v.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion: tls.VersionTLS12}
	v.leaves[host] = c
	return c, nil
}

// credential is what the proxy adds to requests for a host.
func (v *vault) credential(r netproxy.Request) *netproxy.Credential {
	c := v.all[r.String()]
	if c == nil {
		return nil
	}
	config, err := v.leaf(r.Host)
	if err != nil {
		return nil // the command reaches the host without the credential
	}
	return &netproxy.Credential{Name: c.Name, TLS: config,
		Header: func(ctx context.Context) (name, value string, secrets []string, err error) {
			text, err := v.value(ctx, c)
			if err != nil {
				return "", "", nil, err
			}
			switch {
			case c.Header != "":
				return c.Header, text, nil, nil
			case c.User != "":
				basic := base64.StdEncoding.EncodeToString([]byte(c.User + ":" + text))
				return "Authorization", "Basic " + basic, []string{basic, text}, nil
			}
			return "Authorization", "Bearer " + text, []string{text}, nil
		}}
}

// value is the secret of a credential. One that is asked for at the same time by several requests is looked for once.
func (v *vault) value(ctx context.Context, c *Credential) (string, error) {
	v.asking.Lock()
	defer v.asking.Unlock()
	if got, ok := v.values[c.Name]; ok && time.Since(got.at) < secretAge {
		return got.text, nil
	}
	text, err := c.Value(ctx)
	if err != nil {
		return "", err
	}
	text = strings.TrimSpace(text)
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", errors.New("it is empty, or is not one line")
	}
	v.values[c.Name] = secret{text, time.Now()}
	return text, nil
}

// count counts a request, and reports whether it is the first one of a credential to a host.
func (v *vault) count(name, host string) (first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used[name+" for "+host]++
	return v.used[name+" for "+host] == 1
}

// uses says which credential was used for which host how often.
func (v *vault) uses() (lines []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(v.used)) {
		lines = append(lines, fmt.Sprintf("uses of the credential %s: %d", what, v.used[what]))
	}
	return lines
}

// machineCertificates are the certificates that programs of the machine trust.
func machineCertificates(named string) ([]byte, error) {
	const most = 8 << 20
	for _, file := range []string{named, "/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"} {
		if data, err := home.ReadFile(file, most); file != "" && err == nil {
			return append(data, '\n'), nil
		}
	}
	return nil, errors.New("setting sandbox.credentials: no file of the certificates of this machine is known (name it by SSL_CERT_FILE)")
}
