package link

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/platform/addresses"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Join says where a hub is and what lets one in: the line that `drover hub` prints.
type Join struct {
	Address string // host:port
	Project string
	Token   string
	// Pin is the SHA-256 of the certificate of the hub's authority; empty: no TLS, which only a
	// loopback address may have.
	Pin string
}

// scheme of a line.
const scheme = "drover"

// String is the line.
func (j Join) String() string {
	u := url.URL{Scheme: scheme, User: url.User(j.Token), Host: j.Address, Path: "/" + j.Project, Fragment: j.Pin}
	return u.String()
}

// IsCluster reports whether a text is the URL of a NATS cluster.
func IsCluster(text string) bool {
	kind, _, ok := strings.Cut(text, "://")
	return ok && slices.Contains([]string{"nats", "tls", "ws", "wss"}, kind)
}

// ParseJoin reads a line.
func ParseJoin(line string) (Join, error) {
	bad := func(why string) (Join, error) {
		return Join{}, fmt.Errorf("read join line: %s (copy it whole, as `drover hub` prints it)", why)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	if err != nil || u.Scheme != scheme || u.User == nil || u.User.Username() == "" || u.Port() == "" {
		return bad("it is not one: drover://TOKEN@HOST:PORT/PROJECT")
	}
	j := Join{Address: u.Host, Project: strings.TrimPrefix(u.Path, "/"), Token: u.User.Username(), Pin: u.Fragment}
	if err := fleetwire.CheckName("project", j.Project); err != nil {
		return bad(err.Error())
	}
	if j.Pin != "" {
		if pin, err := hex.DecodeString(j.Pin); err != nil || len(pin) != sha256.Size {
			return bad("its certificate is not named by a SHA-256")
		}
	} else if !addresses.Loopback(u.Hostname()) {
		return bad(fmt.Sprintf("%s is on another machine, and the line names no certificate", u.Hostname()))
	}
	return j, nil
}

// ErrNoHub is wrapped by errors that say that the user has no hub.
var ErrNoHub = errors.New("there is no hub (start one: `drover hub`)")

// OwnFile is the file in the folder of a hub with the join line for sessions of its user.
func OwnFile(dir string) string { return filepath.Join(dir, "session.join") }

// maxLine limits a file with a join line, in bytes.
const maxLine = 4 << 10

// Own returns how sessions of this user join the hub of a folder.
func Own(root home.Root, dir string) (Join, error) {
	data, err := root.ReadFile(OwnFile(dir), maxLine)
	if errors.Is(err, fs.ErrNotExist) {
		return Join{}, ErrNoHub
	}
	if err != nil {
		return Join{}, fmt.Errorf("find hub: %w", err)
	}
	return ParseJoin(string(data))
}

// Pin names the certificate of an authority.
func Pin(cert []byte) string {
	sum := sha256.Sum256(cert)
	return hex.EncodeToString(sum[:])
}

// pinned trusts what the authority with this pin has signed, whatever the system trusts.
func pinned(pin func() string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // the chain is checked below against the pinned authority
		VerifyConnection: func(s tls.ConnectionState) error {
			roots, found := x509.NewCertPool(), false
			for _, c := range s.PeerCertificates {
				if c.IsCA && Pin(c.Raw) == pin() {
					roots.AddCert(c)
					found = true
				}
			}
			if !found || len(s.PeerCertificates) == 0 {
				return errors.New(
					"this is not the hub of the join line: its certificate is another one (get a new line from the hub)",
				)
			}
			// The name in the certificate does not count: the authority signs for its hub alone. Neither
			// does the clock of this machine, which may be wrong.
			leaf := s.PeerCertificates[0]
			_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: leaf.NotBefore.Add(1)})
			return err
		},
	}
}
