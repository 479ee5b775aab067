package policy

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
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
	name    bool // the value is a name that may be wrong
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

// table is what one text of this package says. The texts are long and a session
// asks for few programs: an entry is read when it is first asked for. They are
// constant: what is wrong in them is found by a test.
type table struct {
	entries map[string]*entry
	groups  map[string][]string // options of many entries; by name, with its @
}

type entry struct {
	exact bool     // of git
	lines []string // the first one with its head
	read  sync.Once
	what  *program // written once
}

// indexed finds the entries of a text.
func indexed(text string, exact bool) *table {
	t := &table{entries: map[string]*entry{}, groups: map[string][]string{}}
	var now *entry
	var group string
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == ' ' && now != nil:
			now.lines = append(now.lines, line)
		case line[0] == ' ':
			t.groups[group] = append(t.groups[group], line)
		case line[0] == '@':
			head, rest, _ := strings.Cut(line, ":")
			group, now = head, nil
			t.groups[group] = append(t.groups[group], rest)
		default:
			now = &entry{exact: exact, lines: []string{line}}
			name, _ := now.names()
			for n := range strings.SplitSeq(name, ",") {
				t.entries[n] = now
			}
		}
	}
	return t
}

// names returns the names that an entry begins with, and the words behind them.
func (e *entry) names() (name string, words []string) {
	head, _, _ := strings.Cut(e.lines[0], ":")
	words = strings.Fields(head)
	if e.exact && len(words) > 2 && shape(words[2]) { // two words, such as stash list
		return words[0] + " " + words[1], words[2:]
	}
	return words[0], words[1:]
}

// program is what is known of a name; nil: nothing.
func (t *table) program(name string) *program {
	e := t.entries[name]
	if e == nil {
		return nil
	}
	e.read.Do(func() { e.what = t.parse(e) })
	return e.what
}

func (t *table) parse(e *entry) *program {
	p := &program{exact: e.exact, options: map[string]option{}}
	_, words := e.names()
	p.operands = words[0]
	for _, word := range words[1:] {
		p.modify(word)
	}
	for i, line := range e.lines {
		if i == 0 {
			_, line, _ = strings.Cut(line, ":")
		}
		for token := range strings.FieldsSeq(line) {
			if token[0] != '@' {
				p.add(token)
				continue
			}
			for _, more := range t.groups[token] {
				for one := range strings.FieldsSeq(more) {
					p.add(one)
				}
			}
		}
	}
	slices.Sort(p.long)
	p.long = slices.Compact(p.long)
	return p
}

// shape reports whether a word says what operands are.
func shape(word string) bool {
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
	for end > 2 && strings.IndexByte(":=?^~*+rn", token[end-1]) >= 0 &&
		(token[end-1] != 'r' && token[end-1] != 'n' || strings.IndexByte(":=+", token[end-2]) >= 0) {
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
		case 'n':
			o.name = true
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
	names    []word // those that may be wrong
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
	d.deep, d.shallow, d.lists, d.given = d.deep ||
		o.deep, d.shallow ||
		o.shallow, d.lists ||
		o.lists, d.given ||
		o.pattern
	d.values = append(d.values, values...)
	if len(values) == 0 {
		return
	}
	last := values[len(values)-1]
	if o.name {
		d.names = append(d.names, last)
	}
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
	if i == len(p.long) || !strings.HasPrefix(p.long[i], begin) ||
		i+1 < len(p.long) && strings.HasPrefix(p.long[i+1], begin) {
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
