package netproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Request is a connection that a command asks for.
type Request struct {
	User string // of the credentials
	Host string // as asked for: an address, or a name in lower case, in ASCII, without a final dot
	Port int
}

// String is the narrowest pattern of [Rules] that allows the request: host:port.
func (r Request) String() string { return net.JoinHostPort(r.Host, strconv.Itoa(r.Port)) }

// newRequest checks and normalises the address that a client sent.
func newRequest(user, host, port string) (Request, error) {
	h, err := parseHost(host)
	if err != nil {
		return Request{}, err
	}
	n, err := parsePort(port)
	if err != nil {
		return Request{}, err
	}
	return Request{User: user, Host: h, Port: n}, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %.20q is not a number from 1 to 65535", s)
	}
	return int(n), nil
}

// parseHost normalises an address or a name. It refuses what resolvers read in
// different ways: zones, and IPv4 addresses in other spellings than 127.0.0.1.
func parseHost(s string) (string, error) {
	if len(s) > 1024 || !utf8.ValidString(s) {
		return "", errors.New("the host is longer than a name can be, or not UTF-8")
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return "", fmt.Errorf("address %q has a zone (write it without %%%s)", s, a.Zone())
		}
		return a.Unmap().String(), nil
	}
	name, err := idna.New(idna.MapForLookup(), idna.StrictDomainName(false), idna.CheckHyphens(false), idna.BidiRule()).
		ToASCII(s)
	if err != nil {
		return "", fmt.Errorf("host %.100q is not a name: %w", s, err)
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if len(name) > 253 {
		return "", fmt.Errorf("host %.100q is longer than 253 characters", s)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		odd := func(c rune) bool { return !strings.ContainsRune(nameCharacters, c) }
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, odd) {
			return "", fmt.Errorf("host %.100q is neither a name nor an address", s)
		}
		last = label
	}
	if numeric(last) {
		return "", fmt.Errorf("host %.100q is not an IPv4 address in the form 192.0.2.1", s)
	}
	return name, nil
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-_"

// numeric reports whether a resolver may read a last label as a number, and so the
// whole name as an address.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// isLocalhost reports whether a name means this machine, whatever a resolver says.
func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
