package prompt

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// IsResume reports whether the words ask to go on with a conversation without a
// prompt, as `drover --resume ID` does.
func IsResume(args []string) bool {
	var p Prompt
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.Add(flags)
	flags.Bool("plain", false, "")
	flags.Usage = func() {} // --help is for somebody else
	return len(args) > 0 && strings.HasPrefix(args[0], "-") && flags.Parse(args) == nil && (p.Continue || p.Resume != "")
}

// asksToResume reports whether --resume stands at a place of the words without a value.
func asksToResume(args []string, i int) bool {
	return (args[i] == "--resume" || args[i] == "-r") && (i == len(args)-1 || strings.HasPrefix(args[i+1], "-"))
}

// NamesNoSession reports whether --resume is among the flags without a session.
func NamesNoSession(args []string) bool {
	return slices.ContainsFunc(leadingFlags(args), func(i int) bool { return asksToResume(args, i) })
}

// leadingFlags are the places of the flags before the first word that is neither a flag
// nor the value of one.
func leadingFlags(args []string) []int {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") { // every command asks, and most have none
		return nil
	}
	var p Prompt
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.Add(flags)
	var out []int
	for i := 0; i < len(args); i++ {
		word := args[i]
		if word == "--" || !strings.HasPrefix(word, "-") {
			break
		}
		out = append(out, i)
		switch {
		case asksToResume(args, i):
		case word == "-r":
			i++
		case strings.HasPrefix(word, "--") && !strings.Contains(word, "="):
			if f := flags.Lookup(word[2:]); f != nil && f.NoOptDefVal == "" {
				i++
			}
		}
	}
	return out
}

// IsPrompt reports whether the words ask for `drover -p`.
func IsPrompt(args []string) bool {
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && drivenBySDK(args) {
		return true
	}
	return slices.ContainsFunc(leadingFlags(args), func(i int) bool { return args[i] == "-p" || args[i] == "--print" })
}
