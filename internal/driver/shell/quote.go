package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Quote shows arguments as a line that a shell would split the same way.
func Quote(args ...string) string {
	words := make([]string, len(args))
	for i, a := range args {
		q, err := syntax.Quote(a, syntax.LangBash)
		if err != nil {
			q = a // it holds what no shell can; it is for show only
		}
		words[i] = q
	}
	return strings.Join(words, " ")
}
