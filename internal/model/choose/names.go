package choose

import (
	"slices"
	"strings"
	"unicode"

	"github.com/drover-dev/drover/internal/model/modelinfo"
)

// usualProvider is the provider of a name without a provider.
const usualProvider = "anthropic"

// Free reports whether a name means a model that is a file: it costs
// nothing, and needs no permission.
func Free(name string) bool {
	return strings.HasPrefix(name, "script:") || strings.HasPrefix(name, "replay:")
}

// Full returns the full name of a model that a name is short for, or the name itself.
func (p Policy) Full(name string) string { return p.full(name) }

// full expands a name that is in use already, so that it cannot be refused.
func (p Policy) full(name string) string {
	if f, ok := p.expand(name); ok {
		return f
	}
	return name
}

// expand returns the full name for a name: an alias, which may lead to
// another, a name as it is displayed elsewhere, or a full name. It returns false for
// text that cannot be the name of a model.
func (p Policy) expand(name string) (string, bool) {
	name = strings.TrimSpace(name)
	if slices.Contains(p.Own, name) {
		return name, true
	}
	if short, long := strings.CutSuffix(name, "[1m]"); long {
		full, _ := p.expand(short)
		full = modelinfo.Full(full + "[1m]")
		return full, full != ""
	}
	for range len(p.Aliases) { // the bound ends a circle of aliases
		to := p.Aliases[name]
		if to == "" || to == name {
			break
		}
		name = strings.TrimSpace(to)
	}
	if f := modelinfo.Full(name); f != "" {
		return f, true
	}
	if Free(name) || strings.Contains(name, "/") {
		return name, name != ""
	}
	if f := displayed(name); f != "" {
		return f, true
	}
	return name, name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) ||
			unicode.IsControl(r)
	})
}

// displayed returns the full name for a name as editors show it, such as "Claude
// Sonnet 4.5 (copilot)" or "GPT-4.1", or empty.
func displayed(name string) string {
	short, _, _ := strings.Cut(name, " (")
	short = strings.Join(strings.Fields(strings.ToLower(short)), "-")
	claude := strings.HasPrefix(short, "claude-")
	if short == name && !(claude && strings.Contains(short, ".")) {
		return "" // a name in the form that is sent
	}
	switch dashed := strings.ReplaceAll(short, ".", "-"); {
	case dashed == "claude-sonnet-4", dashed == "claude-opus-4":
		return dashed + "-0"
	case dashed == "claude-3-5-sonnet", dashed == "claude-3-7-sonnet", dashed == "claude-3-5-haiku":
		return dashed + "-latest"
	case claude:
		return dashed
	case strings.HasPrefix(short, "gpt-"):
		return "openai/" + short
	}
	return ""
}

// names returns all names of a model: its [Forms] and its aliases.
func (p Policy) names(full string) []string {
	out := Forms(full)
	for _, a := range modelinfo.Aliases() {
		if p.Aliases[a.Short] == "" && a.Full == full {
			out = append(out, a.Short)
		}
	}
	for alias := range p.Aliases {
		if f, ok := p.expand(alias); ok && f == full {
			out = append(out, alias)
		}
	}
	return out
}

// Forms returns the ways to write a full name: with and without its provider.
func Forms(full string) []string {
	out := []string{full}
	if Free(full) {
		return out
	}
	if !strings.Contains(full, "/") {
		return append(out, usualProvider+"/"+full)
	}
	for rest := full; ; {
		_, after, ok := strings.Cut(rest, "/")
		if !ok || after == "" {
			return out
		}
		out, rest = append(out, after), after
	}
}

// family returns the first word of a bare name, such as claude or gpt.
func family(full string) string {
	bare := full[strings.LastIndexByte(full, '/')+1:]
	word, _, _ := strings.Cut(strings.ToLower(bare), "-")
	return word
}

// Match reports whether a pattern covers a name, whatever the case of letters.
// A star matches any text, also the empty one.
func Match(pattern, name string) bool {
	parts := strings.Split(strings.ToLower(pattern), "*")
	name = strings.ToLower(name)
	if len(parts) == 1 {
		return parts[0] == name
	}
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, parts[last])
}

// Best returns the value of the most specific key that covers any of the names: a name
// before a pattern, then the pattern with the most letters other than stars, then
// the first by spelling.
func Best[V any](values map[string]V, names ...string) (V, bool) {
	var best string
	found := false
	for key := range values {
		if !slices.ContainsFunc(names, func(n string) bool { return Match(key, n) }) {
			continue
		}
		if !found || stronger(key, best) {
			best, found = key, true
		}
	}
	return values[best], found
}

func stronger(a, b string) bool {
	x, y := strings.Count(a, "*"), strings.Count(b, "*")
	if (x == 0) != (y == 0) {
		return x == 0
	}
	if letters := len(a) - x - (len(b) - y); letters != 0 {
		return letters > 0
	}
	return a < b
}

// Sees reports whether a model sees images, as far as is known. The name may have a provider
// before it.
func Sees(model string) bool {
	return modelinfo.Sees(strings.ToLower(model[strings.LastIndexAny(model, "/:")+1:]))
}
