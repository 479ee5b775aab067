package policy

import (
	"regexp"
	"strings"
)

// script says why the script of a program could do more than read and print. Only the
// shortest scripts are looked at, by their letters: a longer one is a question.
func script(name string, d parsed) string {
	var prints func(string) bool
	switch name {
	case "sed":
		prints = sedPrints
	case "awk", "gawk", "mawk", "nawk":
		prints = awkPrints
	case "jq":
		prints = jqPrints
	default:
		return ""
	}
	for _, w := range d.patterns {
		if w.glob || !w.known || !prints(w.text) {
			return "a script of " + name + " that is not looked into"
		}
	}
	if len(d.patterns) == 0 && len(d.operands) > 0 {
		return "a script that is not found"
	}
	return ""
}

// sedPrints accepts commands that print, delete, replace or quit, at lines by number or by what
// is in them.
func sedPrints(s string) bool {
	const (
		text    = `([^/\\\n]|\\[^/\n])*`
		address = `([0-9]+|\$|/` + text + `/I?)`
		command = ` *(` + address + `(,` + address + `)?)?[ !]*([pdq=]|s/` + text + `/` + text + `/[gIip0-9]*) *`
	)
	return regexp.MustCompile(`^` + command + `(;` + command + `)*$`).MatchString(s)
}

// awkPrints accepts programs of fields, numbers and sums, without texts, functions and redirections;
// without actions, which print, they may compare and match.
func awkPrints(s string) bool {
	signs := " \t{}()$,;+-*=!&"
	if !strings.Contains(s, "{") {
		// No print redirects anything here. What follows a value is no pattern but a division.
		signs += "<>|~"
		s = regexp.MustCompile(`(^|[(,!&|~;])[ \t]*/([^/\\\n]|\\.)*/`).ReplaceAllString(s, "$1")
	}
	letter := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for _, name := range strings.FieldsFunc(s, func(c rune) bool { return !letter(c) }) {
		switch name {
		case "print", "NR", "NF", "FNR", "BEGIN", "END", "sum", "total", "count", "length":
		default:
			if len(name) > 1 && strings.Trim(name, "0123456789") != "" {
				return false
			}
		}
	}
	return !strings.ContainsFunc(s, func(c rune) bool { return !letter(c) && !strings.ContainsRune(signs, c) })
}

// jqPrints accepts filters that see nothing but their input.
func jqPrints(s string) bool {
	for _, w := range []string{"env", "ENV", "import", "include", "input_filename", "modulemeta", "search_list",
		"prog_args"} {
		if strings.Contains(s, w) {
			return false
		}
	}
	return true
}
