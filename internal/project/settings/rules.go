package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/options"
)

// env reads variables: our own name first, then names of others that people
// have set already.
func (l *loader) env(env func(string) string) {
	for _, d := range l.declared {
		for _, name := range d.Rule.Variables {
			text := env(name)
			if text == "" {
				continue
			}
			before := l.set.Options
			v := d.Of(&l.set.Options)
			switch {
			case d.Put(&l.set.Options, text) && !(v.CanInt() && v.Int() < 0):
				l.bound(name, "the value", d.Rule, v, d.Of(&before))
			case v.Kind() == reflect.Bool:
				l.note(name, "%.40q is neither true nor false, and is ignored", text)
			default:
				l.note(name, "%.40q is not a number, and is ignored", text)
				v.Set(d.Of(&before))
			}
			break
		}
	}
}

// models takes what other programs read of the environment as the names of models.
func (l *loader) models(env func(string) string) {
	for _, of := range [][2]string{{"sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"}, {"opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"},
		{"haiku", "ANTHROPIC_SMALL_FAST_MODEL"}, {"haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"}} {
		if name := env(of[1]); name != "" {
			aliases := maps.Clone(l.set.Models.Aliases)
			if aliases == nil {
				aliases = map[string]string{}
			}
			aliases[of[0]] = name
			l.set.Models.Aliases = aliases
		}
	}
	name := env("OPENAI_MODEL")
	if name != "" && l.set.Model == "" && env("ANTHROPIC_API_KEY") == "" && env("ANTHROPIC_AUTH_TOKEN") == "" {
		l.set.Model = "openai/" + name
	}
}

// bound brings what one source has set into its bounds. What means nothing
// leaves what held before it.
func (l *loader) bound(source, what string, r options.Rule, v, before reflect.Value) {
	switch {
	case r.Clamp != nil:
		if n := number(v); !r.Clamp.Has(n) {
			said := v.Interface()
			v.Set(reflect.ValueOf(min(max(n, r.Clamp.Low), r.Clamp.High)).Convert(v.Type()))
			l.note(source, "%s %v is taken as %v (possible are %s to %s)", what, said, v.Interface(), plain(r.Clamp.Low),
				plain(r.Clamp.High))
		}
	case r.Possible != nil:
		if !v.IsZero() && !r.Possible.Has(number(v)) {
			l.note(source, "%s %v is not possible, and is ignored", what, v.Interface())
			v.Set(before)
		}
	case r.Words != nil:
		if word := v.String(); !slices.Contains(r.Words, word) && (word != "" || r.Default != "") {
			l.note(source, "%s %.40q is not one of %s; %s holds", what, word, strings.Join(r.Words, ", "), before)
			v.Set(before)
		}
	}
}

// times replaces the texts of durations in the settings of one source by numbers, as the fields have them.
// A text that means nothing is taken out, so that what held before it stays.
func (l *loader) times(source string, tree map[string]any, lines map[string]int) error {
	for _, d := range l.declared {
		if !d.Rule.Time {
			continue
		}
		parent, key := tree, d.Name
		for name, rest, deeper := strings.Cut(key, "."); deeper && parent != nil; name, rest, deeper = strings.Cut(key, ".") {
			parent, _ = parent[name].(map[string]any)
			key = rest
		}
		value, there := parent[key]
		text, ok := value.(string)
		switch {
		case !there || value == nil:
			continue
		case !ok:
			return atLine(lines[d.Name], fmt.Errorf("%s is a %s, and should be a string", d.Name, kindOf(value)))
		}
		at, err := d.Rule.Duration(text)
		if err != nil {
			l.note(source, "%s %.40q is not a duration such as %s, and is ignored", d.Name, text, cmp.Or(d.Rule.Default, "30m"))
			delete(parent, key)
			continue
		}
		parent[key] = int64(at)
	}
	return nil
}

// kindOf is the JSON type of a value that is not a string.
func kindOf(v any) string {
	switch v.(type) {
	case json.Number:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "array"
	}
	return "object"
}

func number(v reflect.Value) float64 {
	if v.CanFloat() {
		return v.Float()
	}
	return float64(v.Int())
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// within brings all that one source has set into its bounds.
func (l *loader) within(source string, before options.Options) {
	for _, d := range l.declared {
		l.bound(source, d.Name, d.Rule, d.Of(&l.set.Options), d.Of(&before))
	}
	m, was := &l.set.Models, before.Models
	sane := func(f float64) bool { return f >= 0 && f < 1e9 }
	keep(l, source, "models.prices", m.Prices, was.Prices, func(p options.Price) bool {
		return sane(p.Input) && sane(p.Output) && sane(p.CacheRead) && sane(p.CacheWrite)
	})
	keep(l, source, "models.multipliers", m.Multipliers, was.Multipliers, sane)
	keep(l, source, "models.windows", m.Windows, was.Windows, func(n int64) bool { return n >= 1000 && n < 1e9 })
	keep(l, source, "models.aliases", m.Aliases, was.Aliases, func(s string) bool { return s != "" })
	keep(l, source, "models.complementary", m.Complementary, was.Complementary, func(s string) bool { return s != "" })
}

// keep takes values that cannot be out of a map, and puts back those that they
// took the place of.
func keep[V any](l *loader, source, what string, m, before map[string]V, good func(V) bool) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if key != "" && good(m[key]) {
			continue
		}
		l.note(source, "%s.%.80s: %v is not possible, and is ignored", what, key, m[key])
		delete(m, key)
		if old, ok := before[key]; ok {
			m[key] = old
		}
	}
}

// withoutOwn takes out of a trusted project's settings what leads to another
// place, spends money by itself, or is about all sessions of the user: a
// repository must not decide that.
func (l *loader) withoutOwn(source, prefix string, tree map[string]any, t reflect.Type) {
	for f := range t.Fields() {
		name := options.Name(f)
		value, there := tree[name]
		if !there {
			continue
		}
		if options.RuleOf(f).Own {
			l.note(source, "%s is ignored: the files of a project cannot set it", prefix+name)
			delete(tree, name)
		} else if inner, ok := value.(map[string]any); ok && f.Type.Kind() == reflect.Struct {
			l.withoutOwn(source, prefix+name+".", inner, f.Type)
		}
	}
}
