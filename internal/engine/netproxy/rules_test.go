package netproxy

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/platform/addresses"
)

func rulesOf(t testing.TB, patterns ...string) Rules {
	t.Helper()
	rs, err := ParseRules(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestRulesMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, host string
		port          int
		allowed       bool
		private       bool
	}{
		{"example.com", "example.com", 443, true, false},
		{"example.com", "example.com", 22, true, false},
		{"example.com", "www.example.com", 443, false, false},
		{"example.com", "notexample.com", 443, false, false},
		{"example.com", "example.com.evil.test", 443, false, false},
		{"EXAMPLE.com.", "example.com", 443, true, false},
		{"example.com", "xn--exmple-4nf.com", 443, false, false}, // Cyrillic а
		{"bücher.example", "xn--bcher-kva.example", 443, true, false},
		{"example.com:8443", "example.com", 8443, true, false},
		{"example.com:8443", "example.com", 443, false, false},
		{"*.example.com", "a.example.com", 443, true, false},
		{"*.example.com", "a.b.example.com", 443, true, false},
		{"*.example.com", "example.com", 443, false, false},
		{"*.example.com", "evilexample.com", 443, false, false},
		{"*", "example.com", 443, true, false},
		{"*", "localhost", 5432, true, false},
		{"*", "127.0.0.1", 80, true, false},
		{"*:443", "example.com", 80, false, false},
		{"10.0.0.5", "10.0.0.5", 80, true, true},
		{"10.0.0.5", "10.0.0.6", 80, false, false},
		{"10.0.0.5", "::ffff:10.0.0.5", 80, true, true},
		{"10.0.0.0/8:443", "10.200.0.1", 443, true, true},
		{"10.0.0.0/8:443", "10.200.0.1", 80, false, false},
		{"10.0.0.0/8", "11.0.0.1", 80, false, false},
		{"0.0.0.0/0", "8.8.8.8", 53, true, false},
		{"0.0.0.0/0", "127.0.0.1", 80, true, false},
		{"::/0", "::1", 80, true, false},
		{"8.0.0.0/8", "8.8.8.8", 80, true, false},
		{"fd00::/8", "fd12::1", 80, true, true},
		{"[fd00::/8]:80", "fd12::1", 80, true, true},
		{"fd00::/8:80", "fd12::1", 81, false, false},
		{"::1", "::1", 80, true, true},
		{"[::1]:80", "::1", 80, true, true},
		{"[::1]:80", "::1", 81, false, false},
		{"169.254.0.0/16", "169.254.169.254", 80, true, false},
		{"169.254.0.0/16", "169.254.1.1", 80, true, true},
		{"169.254.169.254", "169.254.169.254", 80, true, true},
		{"localhost:5432", "localhost", 5432, true, true},
		{"localhost:5432", "localhost", 5433, false, false},
		{"localhost", "127.0.0.1", 80, false, false},
		{"*.localhost", "app.localhost", 80, true, true},
	} {
		allowed, private := rulesOf(t, c.pattern).Match(Request{Host: c.host, Port: c.port})
		if allowed != c.allowed || private != c.private {
			t.Errorf("%s for %s:%d: allowed %v, private %v; want %v, %v",
				c.pattern, c.host, c.port, allowed, private, c.allowed, c.private)
		}
	}
	if allowed, _ := (Rules{}).Match(Request{Host: "example.com", Port: 443}); allowed {
		t.Error("no rules allow something")
	}
}

func TestRulesRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                     "empty",
		"https://example.com/": "URL",
		"me@example.com":       "only the host",
		"exa*ple.com":          "* stands alone",
		"*.*.com":              "* stands alone",
		"*example.com":         "* stands alone",
		"**":                   "* stands alone",
		"*.10.0.0.1":           "no names below",
		"*.0.0.1":              "IPv4 address in the form",
		"example.com/path":     "paths cannot be allowed",
		"10.0.0.5/8":           "write 10.0.0.0/8",
		"::ffff:10.0.0.0/104":  "IPv4 form",
		"10.0.0.0/33":          "range",
		"example.com:":         "port is missing",
		"10.0.0.0/8:":          "port is missing",
		"example.com:http":     "port",
		"example.com:0":        "port",
		"example.com:65536":    "port",
		"example.com:+80":      "port",
		"[::1":                 "brackets",
		"[example.com]:80":     "brackets",
		"[::1]80":              "brackets",
		"fe80::1%eth0":         "zone",
		"0x7f.1":               "IPv4 address in the form",
		"2130706433":           "IPv4 address in the form",
		"0177.0.0.1":           "IPv4 address in the form",
		"a b.com":              "neither a name",
		"a..com":               "neither a name",
		"a\x00.com":            "neither a name",
	} {
		_, err := ParseRules([]string{"good.example", pattern})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
	_, err := ParseRules([]string{"a b", "c d"})
	if err == nil || !strings.Contains(err.Error(), `"a b"`) || !strings.Contains(err.Error(), `"c d"`) {
		t.Errorf("the error does not name both patterns: %v", err)
	}
}

func TestParseHost(t *testing.T) {
	for in, want := range map[string]string{
		"Example.COM":                   "example.com",
		"example.com.":                  "example.com",
		"bücher.example":                "xn--bcher-kva.example",
		"BÜCHER.example":                "xn--bcher-kva.example",
		"xn--bcher-kva.example":         "xn--bcher-kva.example",
		"ｅｘａｍｐｌｅ.com":                   "example.com",
		"exa\u00admple.com":             "example.com", // soft hyphen
		"example。com":                   "example.com",
		"my_bucket.s3.example":          "my_bucket.s3.example",
		"r3---sn-4g5e.googlevideo.test": "r3---sn-4g5e.googlevideo.test",
		"::FFFF:1.2.3.4":                "1.2.3.4",
		"2001:DB8:0::1":                 "2001:db8::1",
	} {
		if got, err := parseHost(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ".", "..", "a..b", "example.com..", ".example.com", "a b", "a\r\nb", "a\x00b", "a\tb", "a/b", "a:80", "a@b", "a%b", "a\\b", "[::1]",
		"fe80::1%eth0", "::1%0", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.01", "1.2.3.4.5", "1.2.3", "256.1.1.1",
		"１２７.1", "１２７.0.0.1", "①②⑦.0.0.①", "foo.0x", "foo.1", "xn--a.example", "xn--", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 130) + "com",
		strings.Repeat("a", 2000), "\xff.com", "a\u2028b.com",
	} {
		if got, err := parseHost(in); err == nil {
			t.Errorf("%q is read as %q", in, got)
		}
	}
}

// What a request is shown as is a rule that allows it, and no other port or host.
func TestRequestIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.OneOf(
			rapid.StringMatching(`([a-z0-9_]([a-z0-9-]{0,5}[a-z0-9])?\.){0,3}[a-z]{1,6}`),
			rapid.Custom(func(t *rapid.T) string {
				return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))).String()
			}),
			rapid.Custom(func(t *rapid.T) string {
				return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6"))).String()
			}),
		).Draw(t, "host")
		r := Request{Port: rapid.IntRange(1, 65534).Draw(t, "port")}
		var err error
		if r.Host, err = parseHost(host); err != nil {
			t.Skip(err)
		}
		rs, err := ParseRules([]string{r.String()})
		if err != nil {
			t.Fatal(err)
		}
		allowed, private := rs.Match(r)
		if a, err := netip.ParseAddr(r.Host); !allowed || err == nil && !private && addresses.Special(a) != "" {
			t.Fatalf("the rule %s does not allow %+v", r, r)
		}
		r.Port++
		if allowed, _ := rs.Match(r); allowed {
			t.Fatal("it allows another port")
		}
	})
}

// FuzzRules: what is read as a rule never allows a private address that it does not
// name, and what is read as a host is read the same way again.
func FuzzRules(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com:443", "10.0.0.0/8:443", "[::1]:80", "*", "localhost:1", "::/0", "0.0.0.0/0", "[::]/0", "bücher.de", "1.2.3.4"} {
		f.Add(s, "127.0.0.1")
		f.Add(s, "a.example.com.")
	}
	f.Fuzz(func(t *testing.T, pattern, host string) {
		h, err := parseHost(host)
		if err == nil {
			if again, err := parseHost(h); err != nil || again != h {
				t.Fatalf("%q is %q and then %q, %v", host, h, again, err)
			}
			if strings.ContainsAny(h, "\x00\r\n %/@[]*") {
				t.Fatalf("%q is %q", host, h)
			}
		}
		rs, err := ParseRules([]string{pattern})
		if err != nil {
			if len(rs.list) != 0 {
				t.Fatal("a wrong pattern is a rule")
			}
			return
		}
		allowed, private := rs.Match(Request{Host: host, Port: 443})
		if private && !allowed {
			t.Fatal("private and not allowed")
		}
		if _, private := rs.Match(Request{Host: "169.254.169.254", Port: 80}); private &&
			!strings.Contains(pattern, "254") && !strings.Contains(strings.ToLower(pattern), "a9fe") {
			t.Fatalf("%q allows a metadata service", pattern)
		}
	})
}
