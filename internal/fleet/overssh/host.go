package overssh

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

// Host is another machine, as ssh knows it.
type Host struct {
	User string // empty: as the configuration of ssh says
	Name string // of a machine, or of a Host line of that configuration
	Port string // empty: as above
}

// Names of users and machines: nothing that is an option of ssh, or that a shell in its configuration
// (ProxyCommand with %h or %r) would take for more than a word.
func isUser(name string) bool { return consistsOf(name, "_", ".@+-") }

func isMachine(name string) bool { return consistsOf(name, "_:", ".%-") }

// consistsOf reports whether a name is made of ASCII letters, digits and the other characters, the later of which
// cannot be its first.
func consistsOf(name, others, later string) bool {
	return name != "" && !strings.Contains(later, name[:1]) && !strings.ContainsFunc(name, func(r rune) bool {
		letter := r|0x20 >= 'a' && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune(others+later, r)
	})
}

// ParseHost reads ssh://[user@]host[:port].
func ParseHost(text string) (Host, error) {
	bad := func(why string) (Host, error) {
		return Host{}, fmt.Errorf("read %.200q: %s (write ssh://[user@]host[:port])", text, why)
	}
	u, err := url.Parse(text)
	if err == nil {
		text = u.Redacted() // the error is shown
	}
	switch {
	case err != nil || u.Scheme != "ssh" || u.Hostname() == "":
		return bad("it is not the address of a machine")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return bad("it has more than a user, a host and a port")
	}
	if _, has := u.User.Password(); has {
		return bad("ssh takes no password from an address: leave it out, and ssh asks for it")
	}
	h := Host{User: u.User.Username(), Name: u.Hostname(), Port: u.Port()}
	if !isMachine(h.Name) || h.User != "" && !isUser(h.User) {
		return bad("the name of the host or of the user has characters that they cannot have")
	}
	return h, nil
}

// String is how people write it.
func (h Host) String() string {
	s := h.Name
	if h.Port != "" {
		s = net.JoinHostPort(h.Name, h.Port)
	}
	if h.User != "" {
		s = h.User + "@" + s
	}
	return s
}

// WorkerName is the name of a worker on it, if none is given.
func (h Host) WorkerName() string {
	name := strings.ToLower(h.Name)
	if net.ParseIP(name) == nil {
		name, _, _ = strings.Cut(name, ".")
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	name = strings.Trim(name, "-")
	name = name[:min(len(name), 63)]
	if fleetwire.CheckName("worker", name) != nil {
		return "worker"
	}
	return name
}
