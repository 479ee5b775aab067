package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Seatbelt returns bounds as a profile for sandbox-exec of macOS. Of several rules about one thing the last one
// counts, so denials come after permissions.
//
// It has never run on a mac, and no command is started with it. macOS has no namespaces: programs see
// localhost and the paths of the machine. ports are further TCP ports of localhost to which a program may connect, such
// as the port of a proxy.
func Seatbelt(b Bounds, hidden, shown []string, ports ...uint16) string {
	var p profile
	p.rule("version", "1")
	p.rule("allow", "default")
	p.rule("deny", "file-write*")
	p.rule("allow", "file-write*", `(literal "/dev/null")`, `(literal "/dev/zero")`, `(literal "/dev/tty")`,
		`(literal "/dev/ptmx")`, `(subpath "/dev/fd")`, `(regex #"^/dev/ttys[0-9]+$")`)
	p.paths("allow", "file-write*", b.Write)
	p.paths("deny", "file-write*", b.Fixed)
	p.paths("allow", "file-write*", b.Open)
	p.paths("deny", "file-read* file-write*", hidden)
	p.paths("allow", "file-read*", shown)
	p.paths("deny", "file-read* file-write*", b.Denied)
	p.rule("deny", "network*")
	p.rule("allow", "network-bind network-inbound", `(local ip "localhost:*")`)
	var to []string
	for _, port := range sortedPorts(b.Ports, ports) {
		to = append(to, fmt.Sprintf(`(remote ip "localhost:%d")`, port))
	}
	if len(to) > 0 {
		p.rule("allow", "network-outbound", to...)
	}
	p.rule("deny", "signal")
	p.rule("allow", "signal", "(target same-sandbox)")
	p.rule("deny", "system-privilege")
	return p.String()
}

// profile is a text in the language of Seatbelt.
type profile struct{ strings.Builder }

func (p *profile) rule(verb, what string, filters ...string) {
	p.WriteString("(" + verb + " " + what)
	for _, f := range filters {
		p.WriteString("\n  " + f)
	}
	p.WriteString(")\n")
}

// paths is a rule about files and folders with all below, if there are any.
func (p *profile) paths(verb, what string, paths []string) {
	filters := make([]string, 0, len(paths))
	for _, path := range paths {
		filters = append(filters, `(subpath "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path)+`")`)
	}
	if len(filters) > 0 {
		p.rule(verb, what, filters...)
	}
}

func sortedPorts(lists ...[]uint16) []uint16 {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}
