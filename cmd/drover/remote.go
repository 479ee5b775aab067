package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/frontend/remoteserver"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// remoteCommand has work done elsewhere, and does that of others.
func (w *world) remoteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "remote", Short: "Have work done by a service elsewhere, or be one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(w.remoteRun(), w.remoteServe())
	return cmd
}

func (w *world) remoteRun() *cobra.Command {
	var req control.RemoteRequest
	var name, metadata string
	var detach bool
	cmd := &cobra.Command{
		Use:   "run [-d] [--service NAME|URL] [--type T] PROMPT",
		Short: "Run one agent elsewhere and print its answer",
		Long: "Run one agent in a session of a service elsewhere and print its answer. Services are set in remote.services of your\n" +
			"settings. The session goes on when this machine does not; `drover ps` shows it, and `drover stop` ends it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("there is no prompt", "as in `drover remote run \"fix the build\"`")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Prompt = strings.Join(args, " ")
			if metadata != "" {
				if req.Metadata = json.RawMessage(metadata); !json.Valid(req.Metadata) {
					return usage("--metadata is no JSON", "give an object such as '{\"pr\":7}'")
				}
			}
			start := control.StartRequest{Name: name, Remote: &req, Env: w.env, Cwd: w.cwd}
			if detach {
				return w.agentDetached(cmd.Context(), start)
			}
			return w.remoteForeground(cmd.Context(), start)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&detach, "detach", "d", false, "print its ID and do not wait")
	f.StringVar(&name, "name", "", "a name for it")
	f.StringVar(&req.Service, "service", "", "a name of the settings, or an address")
	f.StringVar(&req.Type, "type", "", "remote-agent (default), ultraplan, ultrareview, autofix-pr or background-pr")
	f.StringVar(&req.AgentType, "agent-type", "", "the sort of agent, as the service knows it")
	f.StringVar(&req.Model, "model", "", "the model, as the service knows it")
	f.StringVar(&metadata, "metadata", "", "a JSON object for the service and for what checks the end")
	return cmd
}

// remoteForeground waits in this process for work that the detached host follows.
// Whoever interrupts it stops the work.
func (w *world) remoteForeground(ctx context.Context, r control.StartRequest) error {
	d, err := w.directory()
	if err != nil {
		return err
	}
	api, release, err := d.Background(ctx)
	if err != nil {
		return err
	}
	defer release()
	started, err := api.Start(ctx, []control.StartRequest{r})
	if err != nil {
		return err
	}
	if started[0].Error != nil {
		return started[0].Error
	}
	if said := started[0].Task.Renamed(); said != "" {
		w.note(said)
	}
	ref := string(started[0].Task.ID)
	if _, err := api.Wait(ctx, control.WaitRequest{Refs: []string{ref}}); err != nil {
		if ctx.Err() != nil {
			_, stop := api.Stop(context.WithoutCancel(ctx), control.StopRequest{Refs: []string{ref}, Detail: "interrupted"})
			err = errors.Join(context.Cause(ctx), stop)
		}
		return err
	}
	a, err := control.WholeResult(ctx, api, ref)
	switch {
	case err != nil:
		return err
	case a.Task.Status == task.Killed:
		return &cli.ExitError{Code: 4, Err: fmt.Errorf("remote agent %s was stopped", ref)}
	case a.Task.Status == task.Failed:
		return errors.New(a.Task.Error)
	}
	return printReply(a.Text)
}

// remoteTokenVariable holds the token of a server that is told of no other.
const remoteTokenVariable = "DROVER_REMOTE_TOKEN"

func (w *world) remoteServe() *cobra.Command {
	var listen, tokenEnv string
	var open bool
	cmd := &cobra.Command{
		Use:   "serve [--listen 127.0.0.1:0] [--token-env NAME] [--open]",
		Short: "Serve remote sessions: each is an agent in this folder",
		Long: "Serve the session API of docs/remote-agents.md on this machine: each session is an agent that works in this folder,\n" +
			"under this folder's settings and rules. Whoever has the token can have commands run here. To be reached from\n" +
			"elsewhere it needs something in front that speaks TLS. The address is printed when it listens.",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := home.Lookup(w.env)(tokenEnv)
			switch {
			case open && token != "":
				return usage("--open, and "+tokenEnv+" is set", "give one of them")
			case !open && token == "":
				return usage("no token is set in "+tokenEnv, "set one that nobody can guess, or let every user of this machine in with --open")
			}
			return w.serveRemote(cmd.Context(), listen, tokenEnv, token)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "address and port; 0 for any port")
	f.StringVar(&tokenEnv, "token-env", remoteTokenVariable, "name of the variable that holds the token")
	f.BoolVar(&open, "open", false, "let every user and program of this machine in, without a token")
	return cmd
}

// serveRemote holds one session for all remote ones. It has the same ID each
// time, so that a server finds what the one before it left.
func (w *world) serveRemote(ctx context.Context, listen, tokenEnv, token string) (err error) {
	env := slices.DeleteFunc(slices.Clone(w.env), func(kv string) bool { return strings.HasPrefix(kv, tokenEnv+"=") }) // agents must not have it
	l, err := remoteserver.Listen(listen)
	if err != nil {
		return usage(err.Error(), "")
	}
	defer l.Close()
	id, err := w.servedSession()
	if err != nil {
		return err
	}
	set, err := w.settings("")
	if err != nil {
		return err
	}
	exe, err := program()
	if err != nil {
		return err
	}
	s, err := assemble.Open(ctx, assemble.Config{Root: w.root, Folder: w.cwd, Session: id, Role: session.RoleRun, Title: "remote sessions", Version: version, Env: env,
		Settings: set, Keeper: []string{exe, "keeper", "--helper"}, AskWait: set.Permissions.Wait(), Tell: func(_ task.ID, text string) { w.note(text) }})
	if err != nil {
		return locked(err, id)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Serve()
	dir := filepath.Join(s.Place.Dir(), "served")
	if err := w.root.Below().Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open the folder of served sessions: %w", err)
	}
	srv, err := remoteserver.Open(ctx, remoteserver.Config{Host: s, Dir: dir, Token: token, Cwd: w.cwd, Env: env})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr()); err != nil {
		return err
	}
	if err := srv.Serve(ctx, l); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// maxServed bounds the file that names it.
const maxServed = 4 << 10

// servedSession is the session of this folder's servers.
func (w *world) servedSession() (task.ID, error) {
	p := w.root.Project(w.cwd)
	if err := p.Ensure(); err != nil {
		return "", err
	}
	file := filepath.Join(p.Dir(), "served")
	data, err := w.root.ReadFile(file, maxServed)
	if id := strings.TrimSpace(string(data)); err == nil && home.SessionID(id) {
		return task.ID(id), nil
	}
	id := task.NewSessionID()
	return id, w.root.WriteAtomic(file, []byte(string(id)+"\n"))
}
