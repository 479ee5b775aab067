package permission

import (
	"slices"
	"strings"
)

// script says why the script of a program could do more than read and print.
func script(name string, d parsed) string {
	for _, w := range d.patterns {
		why := ""
		switch name {
		case "sed":
			why = sedScript(w.text)
		case "awk", "gawk", "mawk", "nawk":
			why = awkScript(w.text)
		case "jq":
			why = jqScript(w.text)
		}
		if why != "" || scripted(name) && (w.glob || !w.known) {
			return "a script that could do more than print: " + why
		}
	}
	if scripted(name) && len(d.patterns) == 0 && len(d.operands) > 0 {
		return "a script that is not found"
	}
	return ""
}

// scripted programs take a script that could run others.
func scripted(name string) bool {
	switch name {
	case "sed", "awk", "gawk", "mawk", "nawk", "jq":
		return true
	}
	return false
}

// sedScript reads a script of sed. It accepts what prints, deletes, moves and
// replaces text; not what writes, reads other files or runs commands.
func sedScript(s string) string {
	p := sedReader{s: s}
	for {
		p.skip(" \t\n;")
		if p.i == len(s) {
			return ""
		}
		if why := p.command(); why != "" {
			return why
		}
	}
}

type sedReader struct {
	s string
	i int
}

func (p *sedReader) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *sedReader) skip(set string) {
	for p.i < len(p.s) && strings.IndexByte(set, p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *sedReader) command() string {
	if p.peek() == '#' {
		for p.i < len(p.s) && p.s[p.i] != '\n' {
			p.i++
		}
		return ""
	}
	if !p.address() {
		return "an address"
	}
	p.skip(" \t!")
	c := p.peek()
	p.i++
	switch c {
	case '{', '}':
		return ""
	case 'p', 'P', 'd', 'D', 'n', 'N', 'h', 'H', 'g', 'G', 'x', 'z', '=':
		return p.end()
	case 'q', 'Q', 'l', 'L':
		p.skip(" \t")
		p.skip("0123456789")
		return p.end()
	case 'b', 't', 'T', ':':
		p.skip(" \t")
		p.skip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
		return p.end()
	case 's':
		return p.substitute()
	case 'y':
		delim := p.peek()
		p.i++
		if from := p.until(delim); !from || !p.until(delim) {
			return "the command y"
		}
		return p.end()
	}
	return "the command " + string(rune(c))
}

// end accepts what may stand behind a command.
func (p *sedReader) end() string {
	p.skip(" \t")
	switch p.peek() {
	case 0, '\n', ';', '}', '#':
		if p.i < len(p.s) && p.s[p.i] == 0 {
			break
		}
		return ""
	}
	return "something behind a command"
}

// until goes behind the next delimiter that is not escaped.
func (p *sedReader) until(delim byte) bool {
	if delim == 0 || delim == '\n' || delim == '\\' {
		return false
	}
	for ; p.i < len(p.s); p.i++ {
		switch p.s[p.i] {
		case '\\':
			p.i++
		case delim:
			p.i++
			return true
		}
	}
	return false
}

// regexp goes behind a regular expression. A delimiter in brackets ends it for
// some seds and not for others, so there is none.
func (p *sedReader) regexp(delim byte) bool {
	from := p.i
	if !p.until(delim) {
		return false
	}
	body := p.s[from : p.i-1]
	return strings.Count(body, "[") <= strings.Count(body, "]")
}

func (p *sedReader) address() bool {
	for n := 0; ; n++ {
		switch c := p.peek(); {
		case c >= '0' && c <= '9', c == '$', n == 1 && (c == '+' || c == '~'):
			p.i++
			p.skip("0123456789~")
		case c == '/' || c == '\\':
			delim := c
			p.i++
			if c == '\\' {
				delim = p.peek()
				p.i++
			}
			if !p.regexp(delim) {
				return false
			}
			p.skip("IM")
		default:
			return n == 0
		}
		p.skip(" \t")
		if n == 1 || p.peek() != ',' {
			return true
		}
		p.i++
		p.skip(" \t")
	}
}

func (p *sedReader) substitute() string {
	delim := p.peek()
	if p.i++; !p.regexp(delim) || !p.until(delim) {
		return "the command s"
	}
	p.skip("gpiI0123456789")
	return p.end()
}

// awkScript reads a program of awk. It accepts printing of what is computed from
// the input, with functions that are known; no redirection, no pipe, no
// command, and no look at the environment.
func awkScript(s string) string {
	braces, parens := 0, 0
	// Behind what ends a value a slash divides; behind an operator such as ++ it may
	// do either.
	value, either := false, false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != ' ' && c != '\t' && c != '/' {
			either = strings.IndexByte("+-*%^=<>?:", c) >= 0
		}
		switch {
		case c == '"':
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			value = true
		case c == '/' && !value && !either:
			for i++; i < len(s) && s[i] != '/'; i++ {
				if s[i] == '\\' {
					i++
				}
				if i < len(s) && (s[i] == '[' || s[i] == '\n') {
					return "an expression with brackets"
				}
			}
			value = true
		case c == '/':
			return "a division"
		case c == '|':
			if i+1 == len(s) || s[i+1] != '|' {
				return "a pipe"
			}
			i++
			value = false
		case c == '>':
			if braces > 0 && parens == 0 {
				return "a redirection"
			}
			value = false
		case c == '@' || c == '`' || c == '\\' || c == '#':
			return string(rune(c))
		case c == '<' && (i+1 == len(s) || s[i+1] != '='):
			if braces > 0 && parens == 0 {
				return "a redirection"
			}
			value = false
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
			end := i
			for end < len(s) && (s[end] >= 'a' && s[end] <= 'z' || s[end] >= 'A' && s[end] <= 'Z' || s[end] == '_' ||
				s[end] >= '0' && s[end] <= '9') {
				end++
			}
			if why := awkName(s[i:end], strings.HasPrefix(strings.TrimLeft(s[end:], " \t"), "(")); why != "" {
				return why
			}
			value = !slices.Contains([]string{"print", "printf", "return", "else", "do"}, s[i:end])
			i = end - 1
		case c == '{':
			braces++
			value = false
		case c == '}':
			braces--
			value = false
		case c == '(':
			parens++
			value = false
		case c == ')':
			parens--
			value = true
		case c >= '0' && c <= '9' || c == ']' || c == '$' || c == '.':
			value = c != '$'
		case c == ' ' || c == '\t':
		default:
			value = false
		}
	}
	return ""
}

// awkName judges a name, which may be that of a function.
func awkName(name string, called bool) string {
	switch name {
	case "getline", "system", "close", "fflush", "ENVIRON", "ARGV", "ARGC", "ARGIND", "PROCINFO",
		"function", "func", "extension", "include", "load", "namespace", "SYMTAB", "FUNCTAB":
		return name
	}
	if !called {
		return ""
	}
	switch name {
	case "length", "substr", "index", "split", "sub", "gsub", "match", "sprintf", "tolower", "toupper",
		"int", "sqrt", "log", "exp", "sin", "cos", "atan2", "rand", "srand", "gensub", "strftime",
		"systime", "mktime", "asort", "asorti", "patsplit", "strtonum", "and", "or", "xor", "lshift",
		"rshift", "if", "while", "for", "print", "printf", "return", "in", "else", "do", "delete",
		"BEGIN", "END", "NR", "NF":
		return ""
	}
	return "the function " + name
}

// jqScript accepts filters that see nothing but their input.
func jqScript(s string) string {
	words := strings.FieldsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_'
	})
	for _, w := range words {
		switch w {
		case "env", "ENV", "import", "include", "input_filename", "modulemeta", "get_search_list", "__prog_args":
			return w
		}
	}
	return ""
}
