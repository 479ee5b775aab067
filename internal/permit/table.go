package permit

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed programs.txt
var programsText string

//go:embed git.txt
var gitText string

//go:embed gitkeys.txt
var gitKeysText string

// risk of an option, or of a whole command.
type risk int

const (
	reads  risk = iota
	strays      // it reads what is not named
	writes      // it changes files
	runs        // it runs a program that is not named as one
)

// option is one option of a program.
type option struct {
	values  int  // words that it takes
	maybe   bool // one value, joined to it, or none
	file    bool // the last value is a file that it reads
	pattern bool // it gives the pattern or script
	risk    risk
	deep    bool // it reads, or shows, what is in files that are not named
	shallow bool // it shows no content
	lists   bool // operands are names to look for
}

// program is what is known of a program or of a command of git.
type program struct {
	operands string // as programs.txt explains
	deep     bool
	exact    bool // long options are not abbreviated
	lone     bool // short options are not joined
	keep     bool // options end at the first operand
	numbers  bool // -5 is an option
	options  map[string]option
	long     []string // sorted
}

// risky programs have an option that writes or runs, so that the name of a file
// could become one.
func (p *program) risky() bool {
	for _, o := range p.options {
		if o.risk >= writes {
			return true
		}
	}
	return false
}

// tables reads the texts of this package. They are constant: what is wrong in
// them is found by a test.
func tables(text string, exact bool) map[string]*program {
	groups, out := map[string][]string{}, map[string]*program{}
	var entry *program
	var group string
	for _, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		tokens := strings.Fields(line)
		switch {
		case line[0] == ' ':
		case line[0] == '@':
			group, entry = strings.TrimSuffix(tokens[0], ":"), nil
			tokens = tokens[1:]
		default:
			head, rest, _ := strings.Cut(line, ":")
			entry = &program{exact: exact, options: map[string]option{}}
			names, kind := strings.Fields(head), 1
			name := names[0]
			if exact && len(names) > 2 && entry.shape(names[2]) { // two words, such as stash list
				name, kind = names[0]+" "+names[1], 2
			}
			entry.operands = names[kind]
			for _, word := range names[kind+1:] {
				entry.modify(word)
			}
			for _, n := range strings.Split(name, ",") {
				out[n] = entry
			}
			tokens = strings.Fields(rest)
		}
		for _, token := range tokens {
			switch {
			case entry == nil:
				groups[group] = append(groups[group], token)
			case token[0] == '@':
				for _, t := range groups[token] {
					entry.add(t)
				}
			default:
				entry.add(token)
			}
		}
	}
	for _, p := range out {
		slices.Sort(p.long)
		p.long = slices.Compact(p.long)
	}
	return out
}

// shape reports whether a word says what operands are.
func (p *program) shape(word string) bool {
	switch word {
	case "revs", "none", "list", "one", "never", "config":
		return true
	}
	return false
}

func (p *program) modify(word string) {
	switch word {
	case "deep":
		p.deep = true
	case "exact":
		p.exact = true
	case "lone":
		p.lone = true
	case "keep":
		p.keep = true
	}
}

func (p *program) add(token string) {
	var o option
	for _, r := range []struct {
		mark string
		risk risk
	}{{"!!", runs}, {"!", writes}, {"%", strays}} {
		if rest, ok := strings.CutPrefix(token, r.mark); ok && o.risk == reads {
			token, o.risk = rest, r.risk
		}
	}
	if token == "-#" {
		p.numbers = true
		return
	}
	end := len(token)
	for end > 2 && strings.IndexByte(":=?^~*+r", token[end-1]) >= 0 && (token[end-1] != 'r' || strings.IndexByte(":=+", token[end-2]) >= 0) {
		end--
	}
	for _, mark := range token[end:] {
		switch mark {
		case ':', '=':
			o.values++
		case '?':
			o.maybe = true
		case '^':
			o.deep = true
		case '~':
			o.shallow = true
		case '*':
			o.lists = true
		case '+':
			o.pattern = true
		case 'r':
			o.file = true
		}
	}
	name := token[:end]
	if strings.HasPrefix(name, "--") {
		p.long = append(p.long, name)
	} else if !p.lone && len(name) > 2 {
		for _, letter := range name[1:] {
			p.options["-"+string(letter)] = o
		}
		return
	}
	p.options[name] = o
}

// parsed is a command line, split as its program splits it.
type parsed struct {
	operands []word
	late     int // operands from here on stand behind --; -1: there is none
	files    []word
	patterns []word
	values   []word // of all options
	risk     risk
	why      string // what the risk is
	unknown  string // an option that is not listed
	deep     bool   // an option that reads what is not named
	shallow  bool
	lists    bool
	given    bool // an option gave the pattern
}

func (d *parsed) take(o option, name string, values []word) {
	if o.risk > d.risk {
		d.risk, d.why = o.risk, name
	}
	d.deep, d.shallow, d.lists, d.given = d.deep || o.deep, d.shallow || o.shallow, d.lists || o.lists, d.given || o.pattern
	d.values = append(d.values, values...)
	if len(values) == 0 {
		return
	}
	last := values[len(values)-1]
	if o.file {
		d.files = append(d.files, last)
	} else if o.pattern {
		d.patterns = append(d.patterns, last)
	}
}

// parse splits the words after the name of the program.
func (p *program) parse(args []word) parsed {
	d := parsed{late: -1}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.text == "--":
			d.late = len(d.operands)
			d.operands = append(d.operands, args[i+1:]...)
			return d
		case a.text == "-" || !strings.HasPrefix(a.text, "-"):
			if p.keep {
				d.operands = append(d.operands, args[i:]...)
				return d
			}
			d.operands = append(d.operands, a)
		case strings.HasPrefix(a.text, "--"):
			i += p.parseLong(&d, a, args[i+1:])
		default:
			i += p.parseShort(&d, a, args[i+1:])
		}
	}
	return d
}

// parseLong returns how many words after the option belong to it.
func (p *program) parseLong(d *parsed, a word, rest []word) int {
	name, value, joined := strings.Cut(a.text, "=")
	o, ok := p.options[name]
	if !ok && !p.exact {
		name, o, ok = p.abbreviated(name)
	}
	if !ok {
		d.unknown = a.text
		return 0
	}
	if joined {
		d.take(o, name, []word{{text: value, known: true, plain: true}})
		return max(0, o.values-1)
	}
	n := min(o.values, len(rest))
	d.take(o, name, rest[:n])
	return n
}

// abbreviated is the only option that begins so.
func (p *program) abbreviated(begin string) (string, option, bool) {
	i, _ := slices.BinarySearch(p.long, begin)
	if i == len(p.long) || !strings.HasPrefix(p.long[i], begin) || i+1 < len(p.long) && strings.HasPrefix(p.long[i+1], begin) {
		return begin, option{}, false
	}
	return p.long[i], p.options[p.long[i]], true
}

func (p *program) parseShort(d *parsed, a word, rest []word) int {
	if p.numbers && strings.Trim(a.text[1:], "0123456789") == "" {
		return 0
	}
	if p.lone {
		o, ok := p.options[a.text]
		if !ok {
			d.unknown = a.text
			return 0
		}
		n := min(o.values, len(rest))
		d.take(o, a.text, rest[:n])
		return n
	}
	for i := 1; i < len(a.text); i++ {
		name := "-" + a.text[i:i+1]
		o, ok := p.options[name]
		switch {
		case !ok && p.numbers && a.text[i] >= '0' && a.text[i] <= '9':
			continue
		case !ok:
			d.unknown = name
			return 0
		case o.values == 0 && !o.maybe:
			d.take(o, name, nil)
			continue
		case i+1 < len(a.text):
			d.take(o, name, []word{{text: a.text[i+1:], known: true, plain: true}})
			return max(0, o.values-1)
		}
		n := min(o.values, len(rest))
		d.take(o, name, rest[:n])
		return n
	}
	return 0
}
