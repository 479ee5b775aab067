// Package modelinfo has the built-in table of models: short names, prices, windows.
//
// Every short name maps to a model of the table, and the table has its date. The
// package does no I/O. Settings take precedence over it everywhere.
package modelinfo

import (
	_ "embed" // the table
	"strconv"
	"strings"
)

//go:embed models.txt
var table string

// Default is the short name of the model that is meant when nobody names one.
const Default = "sonnet"

// Price is dollars for a million tokens; 0: not told.
type Price struct{ Input, Output, CacheRead, CacheWrite float64 }

// Model is a row of the table.
type Model struct {
	Name     string // without provider and without date
	Provider string
	Price    Price
	Long     Price // of requests above From
	From     int64 // tokens; 0: no such price
	Window   int64 // tokens that it can read; 0: not told
	Output   int64 // tokens that it can write at most; 0: not told
}

// Alias is a short name, and the full name that it stands for.
type Alias struct{ Short, Full string }

// AsOf is the day of the table, such as 2026-11-21.
func AsOf() string {
	_, rest, _ := strings.Cut(table, "\nas of ")
	day, _, _ := strings.Cut(rest, "\n")
	return day
}

// Aliases are the short names, in the order of the table.
func Aliases() []Alias {
	var out []Alias
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "alias" {
			out = append(out, Alias{words[1], words[2]})
		}
	}
	return out
}

// Full is the full name that a short one stands for, in any case of letters, or
// empty.
func Full(short string) string {
	for _, a := range Aliases() {
		if strings.EqualFold(a.Short, short) {
			return a.Full
		}
	}
	return ""
}

// Models are the rows, in the order of the table.
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

// Sees reports whether a model sees images. One that is not in the table does.
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

// ImageLimits are what a provider takes as an image; 0: any.
type ImageLimits struct {
	Side   int // pixels
	Base64 int // bytes
}

// Images are the limits of a provider.
func Images(provider string) ImageLimits {
	for line := range strings.Lines(table) {
		if words := strings.Fields(line); len(words) == 4 && words[0] == "image" && words[1] == provider {
			return ImageLimits{int(figure(words[2])), int(figure(words[3]))}
		}
	}
	return ImageLimits{}
}

// MostOutput is how many tokens a model can write at most; 0: not told. The name
// may have a date.
func MostOutput(model string) int64 {
	best, most := "", int64(0)
	for _, m := range Models() {
		if rest, ok := strings.CutPrefix(model, m.Name); ok && len(m.Name) > len(best) && (rest == "" || dated(rest)) {
			best, most = m.Name, m.Output
		}
	}
	return most
}

// dated reports what follows a name without changing the model.
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

// Nearest is the short name that somebody may have meant who wrote another, or
// empty where none is near.
func Nearest(name string, others ...string) string {
	best, distance := "", 3
	for _, a := range Aliases() {
		others = append(others, a.Short)
	}
	name = strings.ToLower(name)
	for _, short := range others {
		if d := edits(name, strings.ToLower(short)); d < distance && d < len(short) {
			best, distance = short, d
		}
	}
	return best
}

// edits is how many letters have to be added, taken away or changed.
func edits(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
