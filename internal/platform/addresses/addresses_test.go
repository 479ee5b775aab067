package addresses

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSpecial(t *testing.T) {
	for _, s := range strings.Fields(`127.0.0.1 127.9.9.9 0.0.0.0 0.1.2.3 10.1.1.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1
		169.254.1.1 169.254.169.254 168.63.129.16 224.0.0.1 255.255.255.255 192.0.0.192
		:: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::1 2002:7f00:1::
		2001:0:1::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 100::1`) {
		if Special(netip.MustParseAddr(s)) == "" {
			t.Errorf("%s counts as the open internet", s)
		}
	}
	if Special(netip.MustParseAddr("64:ff9b::169.254.169.254")) != Metadata || !Benchmark(netip.MustParseAddr("::ffff:198.18.0.1")) {
		t.Error("a metadata service behind NAT64, or the range of benchmarks, is not known")
	}
	for _, s := range strings.Fields(`1.1.1.1 93.184.216.34 172.32.0.1 100.128.0.1 2606:4700::1111 2a00:1450::1 64:ff9b::1.1.1.1 ::ffff:1.1.1.1`) {
		if what := Special(netip.MustParseAddr(s)); what != "" {
			t.Errorf("%s counts as %s", s, what)
		}
	}
}
