package policy

import "testing"

// A here-document is taken as the parser reads it only where its end is beyond
// doubt.
func TestHereDocs(t *testing.T) {
	for _, c := range []struct {
		name, line string
		doubt      bool
	}{
		{"plain", "cat <<E\nx\nE\n", false},
		{"quoted", "cat <<'E-1.x'\nx\\\nE-1.x", false},
		{"double", "cat <<\"E\" | wc\n$x\nE\nls", false},
		{"tabs", "cat <<-E\n\tx\n\t\tE\n", false},
		{"two", "cat <<A - <<B\na\nA\nb\nB\nls", false},
		{"empty", "cat <<E\nE\n", false},
		{"empty-tabs", "cat <<-E\n\tE\n", false},
		{"nested", "for i in a; do cat <<E\n$i $(ls)\nE\ndone", false},
		{"goes-on", "cat <<E\nx \\\ny\nE\n", false},
		{"shift", "echo $((1<<2)) '<<' \"<<E\"", false},
		{"string", "cat <<<E", false},
		{"escape", "cat <<\\E\nx\\\nE\n", false},
		{"escapes", "cat <<E\\F\nEF\n", true},
		{"in-part", "cat <<'E'F\nEF\n", true},
		{"codes", "cat <<$'E'\nE\n", true},
		{"nothing", "cat <<''\n\n", true},
		{"backslash", "cat <<E\n\\\nE\nE\n", true},
		{"half", "cat <<EF\nE\\\nF\nEF\n", true},
		{"return", "cat <<E\nE\r\nE\n", true},
		{"blank", "cat <<E\nE \nE\n", true},
		{"bracket", "echo $(cat <<E\nE)\nE\n)", true},
		{"backquotes", "echo `cat <<E\nE\n`", true},
		{"within", "cat <<E\n$(cat <<F\nF\n)\nE\n", true},
		{"word-behind", "cat <<E 'a\nE\n'\nE\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if l := gate(t, Rules{Cwd: t.TempDir()}).readLine(c.line); (l.unread != "") != c.doubt {
				t.Errorf("%q: doubt %q", c.line, l.unread)
			}
		})
	}
}

// A host is the one that is connected to, however its name is spelled.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		url, domain string
		want        bool
	}{
		{"https://example.org/x", "example.org", true},
		{"https://ｅxample.org/", "example.org", true},
		{"https://EXAMPLE.org.:8443/", "example.org", true},
		{"https://example。org/", "example.org", true},
		{"https://www.ex\u00adample.org/", "example.org", true},
		{"https://b\u00fccher.example/", "xn--bcher-kva.example", true},
		{"https://XN--bcher-kva.example/", "b\u00fccher.example", true},
		{"https://%EF%BD%85xample.org/", "example.org", true},
		{"https://user:pass@example.org/", "example.org", true},
		{"https://example.org@other.invalid/", "example.org", false},
		{"https://ехample.org/", "example.org", false}, // letters of another script
		{"https://notexample.org/", "example.org", false},
		{"https://a_b.example.org/", "example.org", true},
		{"ftp://example.org/", "example.org", false},
	} {
		if got := hostIn(c.url, hostName(c.domain)); got != c.want {
			t.Errorf("%s is in %s: %t", c.url, c.domain, got)
		}
		for _, mode := range []Mode{Default, Bypass} {
			g := gate(t, Rules{Cwd: t.TempDir(), Mode: mode, Deny: []string{"WebFetch(domain:" + c.domain + ")"}})
			if got := g.Decide(call("WebFetch", "url", c.url)); (got.Decision == Deny) != c.want {
				t.Errorf("%s with a ban on %s: %v", c.url, c.domain, got)
			}
		}
	}
}
