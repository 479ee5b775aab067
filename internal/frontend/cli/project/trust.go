package project

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/project/trust"
)

// trustRequest is the command line of `drover trust`.
type trustRequest struct {
	folder            string
	yes, revoke, json bool
}

func (a *app) trustCommand() *cobra.Command {
	r := trustRequest{folder: a.Cwd}
	cmd := &cobra.Command{
		Use: "trust [FOLDER]",
		Long: "Show what the files of a folder would make Drover execute or allow: hooks, MCP servers, and the rules of\n" +
			"skills and settings. They have no effect until the folder is trusted.\n" +
			"\n" +
			"Trust is given to this folder with exactly these files: when one of them changes, trust it again. A\n" +
			"repository or worktree below it is trusted separately.",
		ValidArgsFunction: console.CompleteFiles,
		Args:              console.Args(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				r.folder = args[0]
			}
			return a.trust(cmd.Context(), r, a.Stdout)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&r.yes, "yes", "y", false, "trust without asking")
	f.BoolVar(&r.revoke, "revoke", false, "revoke the trust")
	f.BoolVar(&r.json, "json", false, "print what is known as JSON, and ask nothing")
	return cmd
}

func (a *app) trust(ctx context.Context, r trustRequest, out io.Writer) error {
	if r.yes && r.revoke {
		return console.Usage("--yes and --revoke are mutually exclusive", "give one of them")
	}
	if info, err := os.Stat(r.folder); err != nil || !info.IsDir() {
		return console.Usage(fmt.Sprintf("%q: not a folder", r.folder), "name a folder that exists")
	}
	if err := a.Root.Ensure(); err != nil {
		return err
	}
	store := trust.At(a.Root.TrustFile())
	if r.revoke {
		return revokeTrust(ctx, store, r, out)
	}
	st, err := store.Check(r.folder)
	if err != nil {
		return err
	}
	if !r.json {
		showTrust(out, st)
	}
	if !st.Trusted && (r.yes || !r.json) {
		if err := a.grantTrust(ctx, store, st, r, out); err != nil {
			return err
		}
		st.Trusted = true
	}
	if r.json {
		return console.PrintJSON(out, st)
	}
	return nil
}

func revokeTrust(ctx context.Context, store trust.Store, r trustRequest, out io.Writer) error {
	had, err := store.Revoke(ctx, r.folder)
	if err != nil {
		return err
	}
	if r.json {
		return console.PrintJSON(out, map[string]any{"folder": absolute(r.folder), "revoked": had})
	}
	word := "is not trusted any more"
	if !had {
		word = "was not trusted"
	}
	_, err = fmt.Fprintf(out, "%s %s\n", console.WholeLine(absolute(r.folder)), word)
	return err
}

func absolute(folder string) string {
	if abs, err := filepath.Abs(folder); err == nil {
		return abs
	}
	return folder
}

// showTrust prints the effects of the files. Their text is shown harmless for a terminal.
func showTrust(out io.Writer, st trust.State) {
	name := console.WholeLine(st.Folder)
	switch {
	case st.Trusted:
		fmt.Fprintf(out, "%s is trusted.\n", name)
	case len(st.Changed) > 0:
		fmt.Fprintf(out, "%s was trusted, but its files have changed:\n", name)
		for _, c := range st.Changed {
			fmt.Fprintf(out, "  %-8s %s\n", c.How, console.WholeLine(c.File))
		}
	}
	if len(st.Effects) == 0 && len(st.Unreadable) == 0 {
		fmt.Fprintf(out, "The files of %s execute nothing and allow nothing.\n", name)
		return
	}
	fmt.Fprintf(out, "The files of %s:\n", name)
	file := ""
	for _, item := range append(append([]trust.Item{}, st.Effects...), st.Unreadable...) {
		if item.File != file {
			file = item.File
			fmt.Fprintf(out, "  %s\n", console.WholeLine(file))
		}
		fmt.Fprintf(out, "    %s\n", console.WholeLine(item.What))
	}
}

func (a *app) grantTrust(ctx context.Context, store trust.Store, st trust.State, r trustRequest, out io.Writer) error {
	if !r.yes {
		if err := a.Confirm(ctx, out, "Trust this folder?", "look at the list, and give --yes"); err != nil {
			return fmt.Errorf("trust %s: %w", st.Folder, err)
		}
	}
	if err := store.Grant(ctx, st); err != nil {
		if errors.Is(err, trust.ErrBlind) {
			err = fmt.Errorf("%w (fix or remove it)", err)
		}
		return err
	}
	if !r.json {
		fmt.Fprintf(out, "%s is trusted now.\n", console.WholeLine(st.Folder))
	}
	return nil
}
