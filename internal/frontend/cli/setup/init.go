package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// newSettings is the settings file that `drover init` writes: an object without settings.
const newSettings = `{
  // Settings of this project, for everybody who works in it. All settings: docs/settings.md.
  // Your own for all projects are in ~/.config/drover/settings.json, your own for this one in
  // .drover/settings.local.json (keep that out of version control).
  //
  // "permissions": {
  //   "allow": ["Bash(make test)"],   // run without a question, once the folder is trusted: drover trust
  //   "ask": ["Bash(git push:*)"],    // are always a question
  //   "deny": ["Read(./.env)"]        // never run
  // },
  // "sandbox": {"mode": "required"},  // commands of models run in the sandbox or not at all
  // "merge": {"check": "make test"}   // must pass before drover merge changes a branch
}
`

// newNotes is the AGENTS.md that `drover init` writes.
const newNotes = `# Notes for agents

<!-- Agents read this file before each conversation. Write down what the code does not say. -->

- Build:
- Test:
- Conventions:
`

// starter is a file that `drover init` writes. It is left out where one of the other files is there.
type starter struct {
	path, text string
	others     []string
}

func (a *app) initCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "init",
		Long: "Write .drover/settings.json, with the most used settings as comments, and a short AGENTS.md, after asking.\n" +
			"Files that are there stay as they are.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.init(cmd.Context(), yes) },
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "write without asking")
	return cmd
}

func (a *app) init(ctx context.Context, yes bool) error {
	var missing []starter
	for _, f := range []starter{
		{path: ".drover/settings.json", text: newSettings},
		{path: "AGENTS.md", text: newNotes, others: []string{"CLAUDE.md"}},
	} {
		if there := a.firstFile(append(f.others, f.path)); there != "" {
			fmt.Fprintf(a.Stdout, "%s is here already.\n", there)
			continue
		}
		missing = append(missing, f)
	}
	if len(missing) == 0 {
		return nil
	}
	if !yes {
		names := make([]string, len(missing))
		for i, f := range missing {
			names[i] = f.path
		}
		question := fmt.Sprintf("Write %s in %s?", strings.Join(names, " and "), console.WholeLine(a.Cwd))
		if err := a.Confirm(ctx, a.Stdout, question, "give --yes"); err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	for _, f := range missing {
		if err := a.create(f.path, f.text); err != nil {
			return fmt.Errorf("init: %w", err)
		}
		fmt.Fprintf(a.Stdout, "Wrote %s.\n", f.path)
	}
	return nil
}

// firstFile returns the first of some names that this folder has; empty: it has none.
func (a *app) firstFile(names []string) string {
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(a.Cwd, name)); !errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
	return ""
}

// create writes a file that is not there yet, below this folder and through no link out of it.
func (a *app) create(name, text string) error {
	folder, err := os.OpenRoot(a.Cwd)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	if err := folder.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Close())
}
