package cli

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls f with each command that help shows.
func everyCommand(root *cobra.Command, f func(*cobra.Command)) {
	for _, c := range root.Commands() {
		f(c)
		everyCommand(c, f)
	}
}

// flagType reports whether help prints this as the type of a flag.
func flagType(name string) bool {
	return regexp.MustCompile(`^([A-Z][A-Z=]*|string|strings|stringArray|int|float|duration|)$`).MatchString(name)
}

// Every command is in one group, has a short line, and examples that are commands with
// flags that exist; a flag's type is a type.
func TestHelp(t *testing.T) {
	root := New((&world{}).deps(io.Discard, io.Discard))
	everyCommand(root, func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Parent() == root && c.GroupID == "" {
			t.Errorf("%s is in no group", path)
		}
		if c.Short == "" || len(c.Short) > 80 || strings.ContainsAny(c.Short, "`\n") || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short text %q", path, c.Short)
		}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); !flagType(name) {
				t.Errorf("%s --%s has the type %q", path, f.Name, name)
			}
		})
		if c.Example == "" {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.Lines(c.Example) {
			checkExample(t, root, c, line)
		}
	})
	prompt := Command((&world{}).deps(io.Discard, io.Discard), []string{"-p"})
	prompt.Flags().VisitAll(func(f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); !flagType(name) {
			t.Errorf("-p --%s has the type %q", f.Name, name)
		}
	})
}

// checkExample finds the words of a line behind drover, and their flags.
func checkExample(t *testing.T, root, of *cobra.Command, line string) {
	t.Helper()
	at := strings.LastIndex(line, "drover ")
	if at < 0 {
		t.Errorf("%s: the example %q has no drover", of.CommandPath(), line)
		return
	}
	args := strings.Fields(strings.NewReplacer(`)"`, "", ")", "").Replace(line[at:]))[1:]
	c, _, err := root.Find(args)
	if err != nil || c == root || c != of && c.Parent() != of {
		t.Errorf("%s: the example %q is of %v, %v", of.CommandPath(), line, c.CommandPath(), err)
		return
	}
	for _, word := range args {
		if word == "--" {
			return
		}
		if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
			name, _, _ = strings.Cut(name, "=")
			if c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil {
				t.Errorf("%s: the example %q has a flag %s that does not exist", of.CommandPath(), line, word)
			}
		}
	}
}

// The words of other programs lead to commands that exist.
func TestOtherWords(t *testing.T) {
	root := New((&world{}).deps(io.Discard, io.Discard))
	for word, other := range otherWords() {
		if c, _, err := root.Find([]string{word}); err == nil && c != root {
			t.Errorf("%s is a command itself", word)
		}
		if c, _, err := root.Find(strings.Fields(other)); !strings.HasPrefix(other, "-p") && (err != nil || c == root) {
			t.Errorf("%s leads to %q, which is no command", word, other)
		}
	}
}

// Only the command that the first word names is made, so that a start does not pay for the others;
// help, completion and unknown words have all.
func TestOneCommand(t *testing.T) {
	d := (&world{}).deps(io.Discard, io.Discard)
	all := New(d).Commands()
	for _, c := range all {
		root := Command(d, []string{c.Name(), "--json"})
		if below := root.Commands(); len(below) != 1 || below[0].Name() != c.Name() || below[0].Short != c.Short {
			t.Errorf("%s: %d commands are made, first %q", c.Name(), len(below), below[0].Use)
		}
	}
	for _, word := range []string{"help", "__complete", "pss", "--plain"} {
		if got := Command(d, []string{word, ""}).Commands(); len(got) < len(all) {
			t.Errorf("%s: %d commands, want %d", word, len(got), len(all))
		}
	}
}
