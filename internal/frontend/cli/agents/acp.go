package agents

import (
	"github.com/spf13/cobra"
)

// ACP is how sessions of an ACP client are opened.
type ACP struct {
	Agent    string // a type of agent in the place of the main one
	Model    string
	Mode     string // of permissions
	Settings string // of the flag --settings
}

// acp is Drover as an agent in an editor.
func (a *app) acp() *cobra.Command {
	var o ACP
	cmd := &cobra.Command{
		Use: "acp",
		Long: "Serve as an agent to one client of the Agent Client Protocol (version 1) on stdin and stdout. An editor starts\n" +
			"it; docs/editors.md has the setting for each. Each session of the editor is a session of Drover: `drover ps`\n" +
			"and `drover attach` in any terminal show it. When the editor closes stdin, all its sessions are closed and\n" +
			"what they run is stopped.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ServeACP(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Agent, "agent", "", "type of agent in the place of the main one")
	f.StringVar(&o.Model, "model", "", "model of the main agent (default: from the settings)")
	f.StringVar(&o.Mode, "permission-mode", "",
		"permission mode at the start of each session (default: from the settings)")
	f.StringVar(&o.Settings, "settings", "", "file with settings, or JSON")
	return cmd
}
