package policy

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/net/idna"
)

// rule is one line of the settings, understood.
type rule struct {
	text string // as it was written
	tool string // empty: every tool
	all  bool   // every call of the tool

	literal string   // exactly this line
	words   []string // of a command
	prefix  bool     // more words may follow

	globs []string  // of paths: absolute; lexical and, where they differ, resolved
	lower []pattern // the same, in small letters, for bans
	named []string  // of paths without wildcards: where they lead
	spare []string  // in small letters: folders of which a ban such as ../** does not speak
	exact string    // a domain or an agent type
}

// bounds of a rule: an untrusted repository may have rules that deny.
const (
	maxRules     = 2000 // of one list
	maxRule      = 4096 // bytes
	maxRuleWords = 64
	maxStars     = 16
)

// pattern is one of paths, with the text before the first wildcard.
type pattern struct{ text, fixed string }

func lower(globs []string) []pattern {
	var out []pattern
	for _, g := range globs {
		g = strings.ToLower(g)
		fixed := g
		if i := strings.IndexAny(g, `*?[{\\`); i >= 0 {
			fixed = g[:i]
		}
		// The folder that the pattern stands for is meant too.
		out = append(out, pattern{g, strings.TrimSuffix(fixed, "/")})
	}
	return out
}

// ToolOf is the name of the tool that a rule is about, as it is written; empty: the rule
// does not begin with one.
func ToolOf(rule string) string {
	name, _, _ := strings.Cut(rule, "(")
	if name = strings.TrimSpace(name); strings.ContainsAny(name, " \t\n)*,") {
		return ""
	}
	return name
}

// Absent reports whether rules may speak of a tool that other programs have and Drover has
// not. They bind nothing.
func Absent(tool string) bool { return tool == "SlashCommand" || tool == "PowerShell" }

// parseRule understands a rule. A rule that is wrong comes back as one for the
// whole tool, which is what a ban must become.
func (g *Gate) parseRule(text string, allow bool) (rule, error) {
	r := rule{text: text}
	name, rest, found := strings.Cut(strings.TrimSpace(text), "(")
	name = strings.TrimSpace(name)
	if name == "" || strings.ContainsAny(name, " \t\n)*,") && !strings.HasPrefix(name, "mcp__") {
		r.all = true
		return r, errors.New("it does not begin with the name of a tool")
	}
	r.tool = name
	if info, ok := g.tools[strings.ToLower(name)]; ok {
		r.tool = info.name
	}
	if !found {
		r.all = true
		return r, nil
	}
	arg, ok := strings.CutSuffix(rest, ")")
	if arg = strings.TrimSpace(arg); !ok || arg == "" {
		r.all = true
		return r, errors.New("it has no closing bracket, or nothing between the brackets")
	}
	if arg == "*" || arg == ":*" {
		r.all = true
		return r, nil
	}
	err := g.parseArgument(&r, arg, allow)
	r.all = err != nil
	return r, err
}

func (g *Gate) parseArgument(r *rule, arg string, allow bool) error {
	switch kindOf(r.tool) {
	case shellTool:
		for _, end := range []string{":*", " *"} {
			if rest, ok := strings.CutSuffix(arg, end); ok && !r.prefix {
				arg, r.prefix = rest, true
			}
		}
		r.words = strings.Fields(arg)
		if len(r.words) == 0 {
			return errors.New("it names no command")
		}
		if len(arg) > maxRule || len(r.words) > maxRuleWords || strings.Count(arg, "*") > maxStars {
			return fmt.Errorf("it is longer than %d bytes or %d words, or has more than %d *", maxRule, maxRuleWords, maxStars)
		}
		if !r.prefix {
			r.literal = arg
		}
		if allow && (strings.ContainsAny(arg, "*?`$;|&<>()'\"\\") || strings.Contains(r.words[0], "=")) {
			if r.words = nil; r.prefix {
				return errors.New("an allow rule with :* at its end is plain words (leave :* out for exactly one line)")
			}
		}
	case readTool, listTool, editTool:
		if strings.Count(arg, "{") > 2 || len(arg) > 4096 || !doublestar.ValidatePattern(arg) {
			return errors.New("its pattern is wrong, or has too many alternatives")
		}
		base := g.rules.Cwd
		if !allow && g.rules.Base != "" {
			base = g.rules.Base
		}
		globs, err := g.absolute(base, arg)
		r.globs, r.lower = globs, lower(globs)
		if !allow && othersOnly(arg) {
			r.spare = folderForms(base, g.rules.Cwd)
		}
		if !wild(*r) {
			for _, glob := range globs {
				r.named = append(r.named, strings.ReplaceAll(glob, `\`, ""))
			}
		}
		return err
	case webTool:
		domain, ok := strings.CutPrefix(arg, "domain:")
		if r.exact = hostName(domain); !ok || r.exact == "" {
			return errors.New("it is not of the form domain:example.org")
		}
	case agentTool, skillTool:
		r.exact = arg
	default:
		if Absent(r.tool) {
			r.exact = arg
			return nil
		}
		return fmt.Errorf("%s takes no argument here", r.tool)
	}
	return nil
}

// othersOnly reports whether a pattern speaks of a parent of the project by no more than a
// wildcard, as in ../** or ..: such a ban is about the other children of that parent.
func othersOnly(pattern string) bool {
	rest := path.Clean(pattern)
	for up := ".."; ; {
		if rest == up {
			return true
		}
		below, ok := strings.CutPrefix(rest, up+"/")
		if !ok {
			return rest != path.Clean(pattern) && strings.Trim(rest, "*/") == ""
		}
		rest = below
	}
}

// folderForms are folders as they are written and as they resolve, in small letters.
func folderForms(dirs ...string) (out []string) {
	for _, dir := range dirs {
		out = append(out, strings.ToLower(filepath.Clean(dir)))
		if real, err := resolve(dir); err == nil {
			out = append(out, strings.ToLower(real))
		}
	}
	return out
}

// spares reports whether a ban does not speak of a path in small letters, since it is in the project.
func (r rule) spares(path string) bool {
	return slices.ContainsFunc(r.spare, func(dir string) bool {
		rest, in := strings.CutPrefix(path, dir)
		return in && (rest == "" || rest[0] == '/')
	})
}

// absolute makes patterns for absolute paths of the pattern of a rule, which is
// about base. A name without a slash holds at any depth.
func (g *Gate) absolute(base, pattern string) ([]string, error) {
	switch {
	case strings.HasPrefix(pattern, "/"):
		base, pattern = "/", strings.TrimLeft(pattern, "/")
	case pattern == "~" || strings.HasPrefix(pattern, "~/"):
		if !filepath.IsAbs(g.rules.Home) {
			return nil, errors.New("it begins with ~, and no home directory is known")
		}
		base, pattern = g.rules.Home, strings.TrimPrefix(pattern[1:], "/")
	case !strings.Contains(pattern, "/") && pattern != "..":
		pattern = "**/" + pattern
	}
	out := []string{quoteGlob(filepath.Clean(base))}
	if real, err := resolve(base); err == nil && real != filepath.Clean(base) {
		out = append(out, quoteGlob(real))
	}
	for i, b := range out {
		out[i] = filepath.Join(b, pattern)
	}
	// What a rule names without wildcards may itself be reached by links.
	if !strings.ContainsAny(pattern, "*?[{\\") {
		if real, err := resolve(filepath.Join(base, pattern)); err == nil {
			out = append(out, quoteGlob(real))
		}
	}
	return out, nil
}

func quoteGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`).Replace(path)
}

// covers reports whether the rule speaks of the tool: a rule for reading also
// speaks of searching, and one for editing of every tool that edits.
func (r rule) covers(tool string) bool {
	if r.tool == "" || strings.EqualFold(r.tool, tool) {
		return true
	}
	if server, ok := strings.CutSuffix(r.tool, "__*"); ok || strings.HasPrefix(r.tool, "mcp__") {
		return strings.HasPrefix(tool, server+"__")
	}
	kind := kindOf(tool)
	switch r.tool {
	case "Read":
		return kind == readTool || kind == listTool
	case "Edit", "Write":
		return kind == editTool
	case "Agent", "Task":
		return kind == agentTool
	}
	return false
}

// match looks for a rule that speaks of the request, as bans must be read: by
// the widest meaning.
func (g *Gate) match(rules []rule, r request) (string, bool) {
	kind := kindOf(r.tool)
	for _, rl := range rules {
		if rl.tool == "" || rl.covers(r.tool) && rl.all {
			return rl.text, true
		}
	}
	if kind == shellTool {
		return g.shellMatch(rules, r.line)
	}
	for _, rl := range rules {
		if !rl.covers(r.tool) {
			continue
		}
		switch kind {
		case readTool, listTool, editTool:
			if g.pathMatch(rl, r.path, g.rules.Cwd) {
				return rl.text, true
			}
		case webTool:
			if hostIn(r.text, rl.exact) {
				return rl.text, true
			}
		case agentTool, skillTool:
			if r.text == rl.exact {
				return rl.text, true
			}
		}
	}
	return "", false
}

// hostIn reports whether the URL leads to the domain or below it.
func hostIn(raw, domain string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	host := hostName(u.Hostname())
	return host == domain || strings.HasSuffix(host, "."+domain)
}

// hostName is the name that is connected to: other spellings of its letters are
// mapped as net/http maps them. One that is no name is left as it is; nobody can
// connect to it.
func hostName(name string) string {
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		name = ascii
	}
	return strings.TrimRight(strings.ToLower(name), ".")
}
