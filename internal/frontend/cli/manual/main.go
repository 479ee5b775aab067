// Command manual writes the reference of the command line, from the commands
// themselves: man pages and completion scripts for packages, and the pages of
// docs/commands.
//
//	go run ./internal/frontend/cli/manual packages DIR
//	go run ./internal/frontend/cli/manual pages DIR
//
// It runs no command and reads nothing but its arguments.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "manual: %s\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("want `packages DIR` or `pages DIR`")
	}
	files := pages
	switch args[0] {
	case "packages":
		files = packages
	case "pages":
	default:
		return fmt.Errorf("unknown word %q: want packages or pages", args[0])
	}
	all, err := files()
	if err != nil {
		return err
	}
	for name, data := range all {
		path := filepath.Join(args[1], name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// commands are the root and the command of prompts, which the root hides.
func commands() (root, prompt *cobra.Command) {
	return cli.New(cli.Deps{}), cli.Command(cli.Deps{}, []string{"-p"})
}

// packages are man pages (man/) and completion scripts (completions/).
func packages() (map[string][]byte, error) {
	out := map[string][]byte{}
	root, _ := commands()
	// The pages have no date, so that a build can be repeated.
	head := &doc.GenManHeader{Title: "DROVER", Section: "1", Source: "Drover", Manual: "Drover", Date: &time.Time{}}
	for _, c := range all(root) {
		c.DisableAutoGenTag = true
		var page bytes.Buffer
		if err := doc.GenMan(c, head, &page); err != nil {
			return nil, fmt.Errorf("write the man page of %s: %w", c.CommandPath(), err)
		}
		out["man/"+strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"] = page.Bytes()
	}
	for shell, name := range map[string]string{"bash": "drover.bash", "zsh": "_drover", "fish": "drover.fish"} {
		var script bytes.Buffer
		c := cli.New(cli.Deps{Console: console.Console{Stdout: &script}})
		c.SetArgs([]string{"completion", shell})
		if err := c.Execute(); err != nil {
			return nil, fmt.Errorf("write the completion script for %s: %w", shell, err)
		}
		out["completions/"+name] = script.Bytes()
	}
	return out, nil
}

// all are the commands that users see, each before those below it.
func all(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, all(sub)...)
		}
	}
	return out
}

// pages are one page for each command of the first level, with those below it, and an index.
func pages() (map[string][]byte, error) {
	root, prompt := commands()
	out := map[string][]byte{"prompt.md": page("drover -p", prompt)}
	var index bytes.Buffer
	fmt.Fprintf(&index, "# Commands\n\nThese pages are made from the help of the program (`make docs`).\n\n%s\n\n"+
		"- [`drover -p`](prompt.md): %s\n", strings.TrimSpace(root.Short)+".", prompt.Short)
	for _, g := range root.Groups() {
		fmt.Fprintf(&index, "\n## %s\n\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID && c.IsAvailableCommand() && c.Name() != "help" {
				fmt.Fprintf(&index, "- [`%s`](%s.md): %s\n", c.CommandPath(), c.Name(), c.Short)
				out[c.Name()+".md"] = page(c.CommandPath(), c)
			}
		}
	}
	out["README.md"] = index.Bytes()
	return out, nil
}

func page(title string, c *cobra.Command) []byte {
	var b bytes.Buffer
	for i, sub := range all(c) {
		mark := "# "
		name := title
		if i > 0 {
			mark, name = "\n## ", sub.CommandPath()
		}
		fmt.Fprintf(&b, "%s%s\n\n%s.\n", mark, name, strings.TrimSuffix(sub.Short, "."))
		if sub.Runnable() {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", sub.UseLine())
		}
		if long := strings.TrimSpace(sub.Long); long != "" {
			fmt.Fprintf(&b, "\n%s\n", long)
		}
		if example := strings.TrimRight(sub.Example, "\n"); example != "" {
			fmt.Fprintf(&b, "\nExamples:\n\n```sh\n%s\n```\n", strings.TrimRight(dedent(example), "\n"))
		}
		flags(&b, sub.NonInheritedFlags())
	}
	return b.Bytes()
}

// dedent takes the indentation away that examples have in help.
func dedent(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

func flags(b *bytes.Buffer, set *pflag.FlagSet) {
	var rows []string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name
		kind, text := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		rows = append(rows, fmt.Sprintf("| %s` | %s |\n", name, strings.ReplaceAll(text, "|", "\\|")))
	})
	if len(rows) == 0 {
		return
	}
	slices.Sort(rows)
	fmt.Fprintf(b, "\n| flag | what it does |\n|---|---|\n%s", strings.Join(rows, ""))
}
