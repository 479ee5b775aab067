package netproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/drover-dev/drover/internal/platform/addresses"
)

// Rules are the hosts that a user allows, as patterns. The zero Rules allow nothing.
//
//	example.com        that name on every port
//	example.com:8443   on that port
//	*.example.com      every name below it, not the name itself
//	10.0.0.5           an address; IPv6 with a port: [2001:db8::1]:443
//	10.0.0.0/8:443     a range of addresses
//	localhost:5432     this machine
//	*                  every name and every address of the open internet
//
// Addresses of this machine and of private networks are allowed only by patterns that
// name them: an address, a range within a private one, and localhost. A name that
// resolves to such an address needs a pattern for the name and one for the address.
// Addresses of cloud metadata services are allowed only one by one.
type Rules struct{ list []rule }

// rule is one pattern. One of the first four fields is set.
type rule struct {
	any    bool
	name   string
	below  string // with the dot in front
	prefix netip.Prefix
	port   int // 0: every port
}

// ParseRules reads patterns. Its error names every pattern that is wrong.
func ParseRules(patterns []string) (Rules, error) {
	var rs Rules
	var errs []error
	for _, p := range patterns {
		r, err := parseRule(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("read network rule %.200q: %w", p, err))
			continue
		}
		rs.list = append(rs.list, r)
	}
	return rs, errors.Join(errs...)
}

func parseRule(pattern string) (rule, error) {
	host, port, err := splitPattern(pattern)
	if err != nil {
		return rule{}, err
	}
	var r rule
	if port != "" {
		if r.port, err = parsePort(port); err != nil {
			return rule{}, err
		}
	}
	if host == "*" {
		r.any = true
		return r, nil
	}
	if strings.Contains(host, "/") {
		r.prefix, err = parseRange(host)
		return r, err
	}
	name, wild := strings.CutPrefix(host, "*.")
	if strings.Contains(name, "*") {
		return rule{}, errors.New("* stands alone or in front of a dot (write example.com, *.example.com or *)")
	}
	if name, err = parseHost(name); err != nil {
		return rule{}, err
	}
	a, err := netip.ParseAddr(name)
	switch {
	case err == nil && wild:
		return rule{}, errors.New("an address has no names below it (write a range such as 10.0.0.0/8)")
	case err == nil:
		r.prefix = netip.PrefixFrom(a, a.BitLen())
	case wild:
		r.below = "." + name
	default:
		r.name = name
	}
	return r, nil
}

// splitPattern separates the port of a pattern, if it has one.
func splitPattern(p string) (host, port string, err error) {
	switch {
	case p == "":
		return "", "", errors.New("it is empty (write a host such as example.com)")
	case strings.Contains(p, "://"):
		return "", "", errors.New("it is a URL (write only its host, such as example.com or example.com:8443)")
	case strings.Contains(p, "@"):
		return "", "", errors.New("it has a user (write only the host)")
	case strings.HasPrefix(p, "["):
		host, rest, closed := strings.Cut(p[1:], "]")
		port, colon := strings.CutPrefix(rest, ":")
		if !closed || rest != "" && (!colon || port == "") || !strings.Contains(host, ":") {
			return "", "", errors.New("brackets hold an IPv6 address (write [2001:db8::1] or [2001:db8::1]:443)")
		}
		return host, port, nil
	}
	address, bits, ranged := strings.Cut(p, "/")
	if ranged {
		bits, port, colon := strings.Cut(bits, ":")
		if colon && port == "" {
			return "", "", errors.New("the port is missing behind the colon")
		}
		return address + "/" + bits, port, nil
	}
	if strings.Count(p, ":") > 1 { // an IPv6 address
		return p, "", nil
	}
	host, port, colon := strings.Cut(p, ":")
	if colon && port == "" {
		return "", "", errors.New("the port is missing behind the colon")
	}
	return host, port, nil
}

func parseRange(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("it is not a range of addresses such as 10.0.0.0/8; paths cannot be allowed")
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("it is a range of IPv4 addresses in IPv6 form (write the IPv4 form)")
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("its address is not the first of the range (write %s)", p.Masked())
	}
	return p, nil
}

// Match reports whether a request is allowed, and whether also where it leads to this
// machine or a private network.
func (rs Rules) Match(r Request) (allowed, private bool) {
	host, err := parseHost(r.Host)
	if err != nil {
		return false, false
	}
	a, err := netip.ParseAddr(host)
	isName := err != nil
	for _, rule := range rs.list {
		if rule.port != 0 && rule.port != r.Port {
			continue
		}
		switch {
		case rule.any:
			allowed = true
		case isName && (rule.name == host || rule.below != "" && strings.HasSuffix(host, rule.below)):
			allowed = true
			private = private || isLocalhost(host)
		case !isName && rule.prefix.IsValid() && rule.prefix.Contains(a):
			allowed = true
			private = private || rule.prefix.IsSingleIP() ||
				addresses.Within(rule.prefix) && addresses.Special(a) != addresses.Metadata
		}
	}
	return allowed, private
}
