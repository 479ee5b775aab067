package prompt

import (
	"strings"

	"github.com/spf13/pflag"
)

// Asked is what the words after `drover` ask for when the first is a flag.
type Asked int

// What may be asked for.
const (
	Other   Asked = iota // a command, or a conversation
	Answer               // `drover -p`, also by a program of the Agent SDK
	Resume               // to resume a conversation that --resume or --continue names
	Resumes              // the list of conversations, by --resume without a session
)

// AskedBy reads the flags before the first other word.
func AskedBy(args []string) Asked {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return Other
	}
	var p Prompt
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.Add(flags)
	flags.Bool("plain", false, "")
	flags.Usage = func() {} // --help is for the command
	asked := Other
	if drivenBySDK(args) {
		asked = Answer
	}
	for i := 0; i < len(args) && strings.HasPrefix(args[i], "-") && args[i] != "--"; i++ {
		word := args[i]
		takesValue := word == "-r"
		if f := flags.Lookup(strings.TrimPrefix(word, "--")); f != nil && strings.HasPrefix(word, "--") {
			takesValue = f.NoOptDefVal == ""
		}
		last := i == len(args)-1 || strings.HasPrefix(args[i+1], "-")
		switch {
		case (word == "-r" || word == "--resume") && last:
			return Resumes
		case word == "-p" || word == "--print":
			asked = Answer
		case takesValue:
			i++
		}
	}
	if asked == Other && flags.Parse(args) == nil && (p.Continue || p.Resume != "") {
		return Resume
	}
	return asked
}
