package main

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/mcpserver"
)

// mcpCommand is Drover for other agents, and the servers of others for ours.
func (w *world) mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Drover as a server of the Model Context Protocol, and the servers that agents use",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "serve",
		Short: "Serve tasks to one client on stdin and stdout",
		Long: "Serve tasks to one MCP client on stdin and stdout. The tasks live in the detached\nhost of the folder it is started in, are seen by `drover ps` in any terminal, and\n" +
			"are stopped when the client goes, unless it asked to keep them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return w.serveMCP(cmd.Context()) },
	})
	cmd.AddCommand(w.mcpServersCommands()...)
	return cmd
}

func (w *world) serveMCP(ctx context.Context) error {
	d, err := w.directory()
	if err != nil {
		return err
	}
	connect := func(ctx context.Context) (control.API, func(), error) { return d.Background(ctx) }
	return mcpserver.Serve(ctx, mcpserver.Config{Connect: connect, Cwd: w.cwd, Env: w.env, Version: version}, &mcp.StdioTransport{})
}
