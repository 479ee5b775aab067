// Package addresses says which addresses are not of the open internet, for the callers that
// connect for a model: WebFetch and the proxy of sandboxed commands. It opens no connections.
package addresses

import (
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Metadata is the text of [Special] for a service that hands out the credentials of a machine.
const Metadata = "a cloud metadata service"

// block is a range of addresses that are not of the open internet.
type block struct {
	netip.Prefix
	what string
}

//rules:constant a memoised function
var blocks = sync.OnceValue(func() []block {
	var out []block
	for _, b := range []struct{ what, prefixes string }{
		{Metadata, "169.254.169.254/32 169.254.170.2/32 169.254.170.23/32 100.100.100.200/32 " +
			"192.0.0.192/32 168.63.129.16/32 fd00:ec2::254/128 fd00:ec2::23/128 fd20:ce::254/128"},
		{"this machine", "0.0.0.0/8 127.0.0.0/8 ::/128 ::1/128"},
		{"a private network", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"},
		{"the network of a provider (CGNAT)", "100.64.0.0/10"},
		{"the local link", "169.254.0.0/16 fe80::/10"},
		{"multicast", "224.0.0.0/4 ff00::/8"},
		// Some of these hold an address of the other family.
		{"a reserved range", "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 ::/96 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 2001::/23 " +
			"2001:db8::/32 2002::/16 3fff::/20 5f00::/16"},
	} {
		for p := range strings.FieldsSeq(b.prefixes) {
			out = append(out, block{netip.MustParsePrefix(p), b.what})
		}
	}
	return out
})

// Loopback reports whether only this machine reaches a host, which is an address or a name.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Special names the network of an address that is not of the open internet, else "". The
// IPv4 ranges for documentation and for benchmarks are not special: neither this machine nor
// its networks use them, and proxies that answer for every name hand them out; see [Benchmark].
func Special(a netip.Addr) string {
	a = a.Unmap()
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, b := range blocks() {
		if b.Contains(a) {
			return b.what
		}
	}
	if !a.IsGlobalUnicast() {
		return "a reserved range"
	}
	return ""
}

// Benchmark reports whether an address is in the range for benchmarks of networks.
func Benchmark(a netip.Addr) bool { return netip.MustParsePrefix("198.18.0.0/15").Contains(a.Unmap()) }

// Within reports whether a range lies in a special one.
func Within(p netip.Prefix) bool {
	for _, b := range blocks() {
		if b.Bits() <= p.Bits() && b.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
