// Package modelinfo has the built-in table of models: short names, prices, windows.
//
// Every short name maps to the newest model of its family in the table, and the table has its
// date. The package does no I/O. Settings take precedence over it everywhere.
package modelinfo

import (
	"cmp"
	_ "embed" // the table
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/platform/spelling"
)

//go:embed models.txt
var table string

// Default is the short name of the model when neither the user nor a definition names one.
const Default = "sonnet"

// Price is in dollars for a million tokens; 0: unknown.
type Price struct{ Input, Output, CacheRead, CacheWrite float64 }

// Model is a row of the table.
type Model struct {
	Name     string // without provider and without date
	Provider string
	Price    Price
	Long     Price // of requests above From
	From     int64 // tokens; 0: no such price
	Window   int64 // tokens that it can read; 0: unknown
	Output   int64 // tokens that it can write at most; 0: unknown
}

// Alias is a short name and its full name.
type Alias struct{ Short, Full string }

// AsOf returns the day of the table, such as 2026-11-21.
func AsOf() string {
	_, rest, _ := strings.Cut(table, "\nas of ")
	day, _, _ := strings.Cut(rest, "\n")
	return day
}

// Aliases returns the short names: the name of a family means its newest model of the table.
func Aliases() []Alias {
	out := []Alias{{"sonnet", ""}, {"opus", ""}, {"haiku", ""}, {"best", "opus"}, {"default", Default}}
	models := Models()
	for i, a := range out {
		out[i].Full = newest(models, cmp.Or(a.Full, a.Short))
	}
	return out
}

// newest returns the model of a family with the highest version.
func newest(models []Model, family string) (name string) {
	var best []int
	for _, m := range models {
		words := strings.Split(m.Name, "-")
		if words[0] != "claude" || !slices.Contains(words, family) {
			continue
		}
		if v := version(words); slices.Compare(v, best) > 0 {
			name, best = m.Name, v
		}
	}
	return name
}

// version returns the numbers in the words of a name, without its date.
func version(words []string) (v []int) {
	for _, w := range words {
		if n, err := strconv.Atoi(w); err == nil && len(w) < 8 {
			v = append(v, n)
		}
	}
	return v
}

const (
	longSuffix = "[1m]"
	longWindow = 1_000_000 // tokens
)

// Full returns the full name for a short one, in any case of letters, or
// empty. [1m] at its end asks for a model with a window of a million tokens; a full name may
// have it as well.
func Full(name string) string {
	short, long := strings.CutSuffix(name, longSuffix)
	full := ""
	for _, a := range Aliases() {
		if strings.EqualFold(a.Short, short) {
			full = a.Full
		}
	}
	if long {
		full = cmp.Or(full, short)
		if m, ok := row(full); !ok || m.Window < longWindow {
			return ""
		}
	}
	return full
}

// Refused returns why a word that other programs take for a model names no model here; nil: it may.
func Refused(name string) error {
	switch {
	case strings.EqualFold(name, "opusplan"):
		return errors.New("a model that changes with the permission mode is not supported (choose opus or sonnet)")
	case strings.HasSuffix(name, longSuffix) && Full(name) == "":
		return errors.New("no window of a million tokens is known of this model (leave [1m] out, or choose one of `drover models`)")
	case strings.ContainsAny(name, "[]") && Full(name) == "":
		return errors.New("the name of a model has no brackets (see `drover models`)")
	}
	return nil
}

// Title returns people's name for a model, such as Sonnet 4.5 or GPT-5.4 mini.
func Title(name string) string {
	words := strings.Split(name[strings.LastIndexByte(name, '/')+1:], "-")
	if words[0] == "gpt" && len(words) > 1 {
		return "GPT-" + strings.Join(words[1:], " ")
	}
	family := slices.IndexFunc(words, func(w string) bool { return w != "claude" && strings.Trim(w, "0123456789") != "" })
	if words[0] != "claude" || family < 0 {
		return name
	}
	var numbers []string
	for _, n := range version(words) {
		numbers = append(numbers, strconv.Itoa(n))
	}
	version := strings.TrimSuffix(strings.Join(numbers, "."), ".0")
	title := strings.ToUpper(words[family][:1]) + words[family][1:] + " " + version
	return strings.TrimSpace(title)
}

// Tokens formats a number of tokens for people, such as 200k or 1M; a dash for 0.
func Tokens(n int64) string {
	switch {
	case n == 0:
		return "-"
	case n%1_000_000 == 0:
		return strconv.FormatInt(n/1_000_000, 10) + "M"
	case n >= 1000:
		return strconv.FormatInt(n/1000, 10) + "k"
	}
	return strconv.FormatInt(n, 10)
}

// Models returns the rows, in the order of the table.
func Models() []Model {
	var out []Model
	at := map[string]int{}
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) != 7 || words[0] == "#" {
			continue
		}
		name, above, long := strings.Cut(words[0], ">")
		p := Price{figure(words[1]), figure(words[2]), figure(words[3]), figure(words[4])}
		if long {
			m := &out[at[name]]
			m.Long, m.From = p, int64(figure(above))
			continue
		}
		at[name] = len(out)
		out = append(out, Model{Name: name, Provider: provider(name), Price: p, Window: int64(figure(words[5])),
			Output: int64(figure(words[6]))})
	}
	return out
}

// Sees reports whether a model sees images. A model outside of the table does.
func Sees(model string) bool {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) != 2 || words[0] != "blind" {
			continue
		}
		if rest, ok := strings.CutPrefix(model, words[1]); ok && (rest == "" || rest[0] == '-') {
			return false
		}
	}
	return true
}

// ImageLimits bound the images that a provider takes; 0: any.
type ImageLimits struct {
	Side   int // pixels
	Base64 int // bytes
}

// Images returns the limits of a provider.
func Images(provider string) ImageLimits {
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) == 4 && words[0] == "image" && words[1] == provider {
			return ImageLimits{int(figure(words[2])), int(figure(words[3]))}
		}
	}
	return ImageLimits{}
}

// MostOutput returns how many tokens a model can write at most; 0: unknown. The name
// may have a date.
func MostOutput(model string) int64 {
	m, _ := row(model)
	return m.Output
}

// row returns the model for a name, which may have a date.
func row(model string) (best Model, ok bool) {
	for _, m := range Models() {
		rest, has := strings.CutPrefix(model, m.Name)
		if has && len(m.Name) > len(best.Name) && (rest == "" || dated(rest)) {
			best, ok = m, true
		}
	}
	return best, ok
}

// dated reports whether rest is a date or -latest, which do not change the model.
func dated(rest string) bool {
	return rest == "-latest" || len(rest) == 9 && rest[0] == '-' && strings.Trim(rest[1:], "0123456789") == ""
}

func provider(name string) string {
	if strings.HasPrefix(name, "claude-") {
		return "anthropic"
	}
	return "openai"
}

func figure(s string) float64 {
	if s == "-" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return f
}

// Nearest returns the short name that a misspelled one may have meant, or
// empty without a similar one.
func Nearest(name string, others ...string) string {
	best, distance := "", 3
	for _, a := range Aliases() {
		others = append(others, a.Short)
	}
	name = strings.ToLower(name)
	for _, short := range others {
		if d := spelling.Distance(name, strings.ToLower(short)); d < distance && d < len(short) {
			best, distance = short, d
		}
	}
	return best
}
