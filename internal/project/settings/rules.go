package settings

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rule is what the tag set of a field declares.
type rule struct {
	usual     string   // default=: what holds where nothing is set
	clamp     *between // clamp=LOW..HIGH: a number outside is taken as the nearest inside
	possible  *between // possible=LOW..HIGH: a number outside is ignored
	words     []string // words=A|B: any other word is ignored
	parse     func(string) (time.Duration, error)
	least     time.Duration // duration=LEAST, or age=LEAST, which may be in days: what is shorter is ignored
	off       bool          // off: the word off, and no time at all, are possible too
	variables []string      // env=A|B: the first that is set wins over files
	own       bool          // own: the files of a project cannot set it
	see       string        // see=PAGE: below docs
}

// between are bounds, both included.
type between struct{ low, high float64 }

func (b between) has(n float64) bool { return n >= b.low && n <= b.high }

func bounds(text string) *between {
	low, high, _ := strings.Cut(text, "..")
	b := between{high: math.Inf(1)}
	b.low, _ = strconv.ParseFloat(low, 64) // TestDeclared finds what is no number
	if high != "" {
		b.high, _ = strconv.ParseFloat(high, 64)
	}
	return &b
}

func ruleOf(tag string) (r rule) {
	if tag == "" {
		return r
	}
	for part := range strings.SplitSeq(tag, ",") {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "default":
			r.usual = value
		case "clamp":
			r.clamp = bounds(value)
		case "possible":
			r.possible = bounds(value)
		case "words":
			r.words = strings.Split(value, "|")
		case "duration":
			r.parse = time.ParseDuration
			r.least, _ = r.parse(value)
		case "age":
			r.parse = ParseAge
			r.least, _ = r.parse(value)
		case "off":
			r.off = true
		case "env":
			r.variables = strings.Split(value, "|")
		case "own":
			r.own = true
		case "see":
			r.see = value
		}
	}
	return r
}

// duration is a field of a part of the settings as a duration: what its text says, 0
// for off, or its default for a text that is none.
func duration(part any, field string) time.Duration {
	v := reflect.ValueOf(part)
	text := v.FieldByName(field).String()
	f, _ := v.Type().FieldByName(field)
	r := ruleOf(f.Tag.Get("set"))
	if r.off && text == "off" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		d, _ = time.ParseDuration(r.usual)
	}
	return d
}

// setting is one field of [Settings], or of a part of it.
type setting struct {
	name  string // with dots, as in files
	index []int
	rule  rule
	about string
}

// declared are all settings that are no objects of others, in their order.
func declared(t reflect.Type, prefix string, index []int, own bool) []setting {
	var out []setting
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue // no setting
		}
		r, at := ruleOf(f.Tag.Get("set")), append(slices.Clone(index), i)
		r.own = r.own || own
		if f.Type.Kind() == reflect.Struct {
			out = append(out, declared(f.Type, prefix+name+".", at, r.own)...)
			continue
		}
		out = append(out, setting{prefix + name, at, r, f.Tag.Get("jsonschema")})
	}
	return out
}

// defaults puts into s what holds where nothing is set.
func (l *loader) defaults() {
	for _, d := range l.declared {
		if d.rule.usual != "" {
			put(d.value(&l.set), d.rule.usual)
		}
	}
	l.set.Providers.OpenAI.API = "chat" // the other provider has one API
}

func (d setting) value(s *Settings) reflect.Value {
	return reflect.ValueOf(s).Elem().FieldByIndex(d.index)
}

// put writes a text into a field that has the kind of one setting, and reports
// whether it can be.
func put(v reflect.Value, text string) bool {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return false
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return false
		}
		v.SetFloat(f)
	case reflect.Bool:
		switch strings.ToLower(text) {
		case "1", "true", "yes", "on":
			v.SetBool(true)
		case "0", "false", "no", "off":
			v.SetBool(false)
		default:
			return false
		}
	}
	return true
}

// env reads variables: our own name first, then names of others that people
// have set already.
func (l *loader) env(env func(string) string) {
	for _, d := range l.declared {
		for _, name := range d.rule.variables {
			text := env(name)
			if text == "" {
				continue
			}
			v := d.value(&l.set)
			was := reflect.New(v.Type()).Elem()
			was.Set(v)
			switch {
			case put(v, text) && !(v.CanInt() && v.Int() < 0):
				l.bound(name, "the value", d.rule, v, was)
			case v.Kind() == reflect.Bool:
				l.note(name, "%.40q is neither true nor false, and is ignored", text)
			default:
				l.note(name, "%.40q is not a number, and is ignored", text)
				v.Set(was)
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
func (l *loader) bound(source, what string, r rule, v, before reflect.Value) {
	switch {
	case r.clamp != nil:
		if n := number(v); !r.clamp.has(n) {
			said := v.Interface()
			v.Set(reflect.ValueOf(min(max(n, r.clamp.low), r.clamp.high)).Convert(v.Type()))
			l.note(source, "%s %v is taken as %v (possible are %s to %s)", what, said, v.Interface(), plain(r.clamp.low),
				plain(r.clamp.high))
		}
	case r.possible != nil:
		if !v.IsZero() && !r.possible.has(number(v)) {
			l.note(source, "%s %v is not possible, and is ignored", what, v.Interface())
			v.Set(before)
		}
	case r.words != nil:
		if word := v.String(); !slices.Contains(r.words, word) && (word != "" || r.usual != "") {
			l.note(source, "%s %.40q is not one of %s; %s holds", what, word, strings.Join(r.words, ", "), before)
			v.Set(before)
		}
	case r.parse != nil:
		text := v.String()
		if text == "" && r.usual == "" || r.off && text == "off" {
			return
		}
		if d, err := r.parse(text); err != nil || d < r.least && !(r.off && d == 0) {
			l.note(source, "%s %.40q is not a duration such as %s, and is ignored", what, text,
				cmp.Or(before.String(), r.usual, "30m"))
			v.Set(before)
		}
	}
}

func number(v reflect.Value) float64 {
	if v.CanFloat() {
		return v.Float()
	}
	return float64(v.Int())
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// within brings all that one source has set into its bounds.
func (l *loader) within(source string, before Settings) {
	for _, d := range l.declared {
		l.bound(source, d.name, d.rule, d.value(&l.set), d.value(&before))
	}
	m, was := &l.set.Models, before.Models
	sane := func(f float64) bool { return f >= 0 && f < 1e9 }
	keep(l, source, "models.prices", m.Prices, was.Prices, func(p Price) bool {
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
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, there := tree[name]
		if !there {
			continue
		}
		if ruleOf(f.Tag.Get("set")).own {
			l.note(source, "%s is ignored: the files of a project cannot set it", prefix+name)
			delete(tree, name)
		} else if inner, ok := value.(map[string]any); ok && f.Type.Kind() == reflect.Struct {
			l.withoutOwn(source, prefix+name+".", inner, f.Type)
		}
	}
}
