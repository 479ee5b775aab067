package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/mcp/mcpauth"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/home"
)

type mcpLogin struct {
	port     int
	client   string
	secret   string // name of the variable that holds it
	metadata string
	scopes   []string
	timeout  time.Duration
}

func (a *app) mcpLoginCommand() *cobra.Command {
	var r mcpLogin
	cmd := &cobra.Command{
		Use:   "login [flags] NAME",
		Short: "Sign in to an MCP server over HTTP with OAuth",
		Long: "Sign in to an MCP server over HTTP with OAuth. Drover prints an address; open it in a browser on this machine,\n" +
			"or forward the port given with --port to it (ssh -L PORT:127.0.0.1:PORT). The tokens are kept in a file that only\n" +
			"you can read, and refreshed when they expire.",
		Args: console.Args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.mcpLogin(cmd.Context(), args[0], r) },
	}
	f := cmd.Flags()
	f.IntVar(&r.port, "port", 0, "port that the browser is sent back to on 127.0.0.1 (default: any)")
	f.StringVar(&r.client, "client-id", "", "ID of a client that is registered at the authorization server "+
		"(default: Drover registers itself)")
	f.StringVar(&r.secret, "client-secret-env", "", "variable that holds the secret of that client")
	f.StringVar(&r.metadata, "client-metadata", "", "https address of a client metadata document to use as the client ID")
	f.StringArrayVar(&r.scopes, "scope", nil,
		"a further `SCOPE` to ask for, in addition to those of the server and those granted before")
	f.DurationVar(&r.timeout, "timeout", 10*time.Minute, "how long to wait for the browser")
	return cmd
}

func (a *app) mcpLogin(ctx context.Context, name string, r mcpLogin) error {
	if r.client != "" && r.metadata != "" || r.secret != "" && r.client == "" {
		return console.Usage("--client-id and --client-metadata are mutually exclusive, and --client-secret-env needs --client-id",
			"see `drover mcp login --help`")
	}
	server, err := a.httpServer(name)
	if err != nil {
		return err
	}
	if err := a.Root.Ensure(); err != nil {
		return err
	}
	store := mcpauth.At(a.Root.Dir())
	defer store.Close()
	ctx, done := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("no answer of the browser within %v", r.timeout))
	defer done()
	l := mcpauth.Login{Address: server.URL, Headers: server.Headers, ClientID: r.client, Metadata: r.metadata,
		Port: r.port, Scopes: r.scopes, Show: func(address string) {
			fmt.Fprintf(a.Stdout, "Open this address to sign in to %s:\n%s\n", name, address)
		}}
	if r.secret != "" {
		if l.Secret = home.Lookup(a.Env)(r.secret); l.Secret == "" {
			return console.Usage("--client-secret-env: variable "+r.secret+" is not set", "set it")
		}
	}
	switch err := store.Login(ctx, l); {
	case errors.Is(err, mcpauth.ErrOpen):
		fmt.Fprintf(a.Stdout, "%s does not ask for a sign-in.\n", name)
		return nil
	case err != nil:
		return fmt.Errorf("sign in to MCP server %s: %w", name, err)
	}
	fmt.Fprintf(a.Stdout, "You are signed in to %s.\n", name)
	return nil
}

func (a *app) mcpLogoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout NAME",
		Short: "Remove the tokens of an MCP server",
		Long:  "Remove the tokens of an MCP server from this machine. They stay valid at the server until they expire there.",
		Args:  console.Args(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			server, err := a.httpServer(args[0])
			if err != nil {
				return err
			}
			if err := a.Root.Ensure(); err != nil {
				return err
			}
			known, err := mcpauth.At(a.Root.Dir()).Logout(server.URL)
			if err != nil {
				return err
			}
			if known {
				fmt.Fprintf(a.Stdout, "The tokens of %s are removed.\n", args[0])
			} else {
				fmt.Fprintf(a.Stdout, "You were not signed in to %s.\n", args[0])
			}
			return nil
		},
	}
}

// httpServer is a server over HTTP that agents would get.
func (a *app) httpServer(name string) (mcpclient.Server, error) {
	entries, err := a.MCPServers()
	if err != nil {
		a.Hint(err.Error())
	}
	for _, e := range entries {
		if e.Name != name || e.Hidden {
			continue
		}
		switch {
		case !e.Usable():
			return mcpclient.Server{}, console.Usage(fmt.Sprintf("MCP server %s cannot be used", name), "see `drover mcp list`")
		case e.Server.Kind() == mcpclient.Stdio:
			return mcpclient.Server{}, console.Usage(fmt.Sprintf("MCP server %s is a command, which takes its credentials from its environment", name), "give them with `drover mcp add --env`")
		}
		return e.Server, nil
	}
	return mcpclient.Server{}, console.Missing("no MCP server "+name, "see `drover mcp list`")
}
