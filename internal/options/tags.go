package options

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one option: a field of [Options], or of a struct in it.
type Setting struct {
	Name  string // with dots, as in files
	Rule  Rule
	About string // for people

	index []int
}

// Of returns the field of the setting in o, which can be set.
func (s Setting) Of(o *Options) reflect.Value { return reflect.ValueOf(o).Elem().FieldByIndex(s.index) }

// Rule is the tag set of a field.
type Rule struct {
	Default   string        // default=: holds where nothing is set
	Clamp     *Bounds       // clamp=LOW..HIGH: a number outside is taken as the nearest inside
	Possible  *Bounds       // possible=LOW..HIGH: a number outside is ignored
	Words     []string      // words=A|B: any other word is ignored
	Time      bool          // duration=LEAST or age=LEAST: the text of a duration; an age may be in days
	Least     time.Duration // of Time; a shorter one is ignored
	Off       bool          // off: the word off, and no time at all, are possible too
	Variables []string      // env=A|B: the first that is set wins over files
	Own       bool          // own: the files of a project cannot set it
	See       string        // see=PAGE: below docs

	days bool
}

// Bounds are the lowest and the highest number, both possible.
type Bounds struct{ Low, High float64 }

// Has reports whether n is within the bounds.
func (b Bounds) Has(n float64) bool { return n >= b.Low && n <= b.High }

func bounds(text string) *Bounds {
	low, high, _ := strings.Cut(text, "..")
	b := Bounds{High: math.Inf(1)}
	b.Low, _ = strconv.ParseFloat(low, 64) // TestDeclared finds a tag without a number
	if high != "" {
		b.High, _ = strconv.ParseFloat(high, 64)
	}
	return &b
}

// RuleOf returns the rule of a field.
func RuleOf(f reflect.StructField) (r Rule) {
	for part := range strings.SplitSeq(f.Tag.Get("set"), ",") {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "default":
			r.Default = value
		case "clamp":
			r.Clamp = bounds(value)
		case "possible":
			r.Possible = bounds(value)
		case "words":
			r.Words = strings.Split(value, "|")
		case "duration", "age":
			r.Time, r.days = true, key == "age"
			r.Least, _ = time.ParseDuration(value)
		case "off":
			r.Off = true
		case "env":
			r.Variables = strings.Split(value, "|")
		case "own":
			r.Own = true
		case "see":
			r.See = value
		}
	}
	return r
}

// Duration reads the text of an option that is a time. 0: no time at all, where that is possible.
func (r Rule) Duration(text string) (d time.Duration, err error) {
	switch {
	case text == "" && r.Default == "", r.Off && text == "off":
		return 0, nil
	case r.days:
		d, err = ParseAge(text)
	default:
		d, err = time.ParseDuration(text)
	}
	if err == nil && d < r.Least && !(r.Off && d == 0) {
		return 0, fmt.Errorf("%s is less than %s", d, r.Least)
	}
	return d, err
}

// ParseAge reads a duration that may be in whole days, such as 30d.
func ParseAge(text string) (time.Duration, error) {
	if number, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseUint(number, 10, 16)
		if err == nil {
			return time.Duration(days) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%.40q is not an age such as 30d or 12h", text)
	}
	return d, nil
}

// Declared returns all settings in the order of their fields.
func Declared() []Setting { return declared(reflect.TypeFor[Options](), "", nil, false) }

func declared(t reflect.Type, prefix string, index []int, own bool) []Setting {
	var out []Setting
	for i := range t.NumField() {
		f := t.Field(i)
		r, at := RuleOf(f), append(slices.Clone(index), i)
		name := prefix + Name(f)
		r.Own = r.Own || own
		if f.Type.Kind() == reflect.Struct {
			out = append(out, declared(f.Type, name+".", at, r.Own)...)
			continue
		}
		out = append(out, Setting{name, r, f.Tag.Get("jsonschema"), at})
	}
	return out
}

// Name is the name of a field in files.
func Name(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Default returns the options where nothing is set.
func Default() Options {
	var o Options
	for _, s := range Declared() {
		if r := s.Rule; r.Default != "" {
			s.Put(&o, r.Default) // TestDeclared finds a default that cannot be put
		}
	}
	o.Providers.OpenAI.API = "chat" // the other provider has one API
	return o
}

// Put sets the setting in o to the value of a text, as a variable of the environment has it, and
// reports whether it can be.
func (s Setting) Put(o *Options, text string) bool {
	v := s.Of(o)
	switch {
	case s.Rule.Time:
		d, err := s.Rule.Duration(text)
		if err != nil {
			return false
		}
		v.SetInt(int64(d))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return false
		}
		v.SetInt(n)
	case v.CanFloat():
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return false
		}
		v.SetFloat(f)
	case v.Kind() == reflect.Bool:
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
