package watch

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Page says where and to whom the page in a browser is served.
type Page struct {
	Listen    string   // address and port
	TokenFile string   // has the token; made with a new one if it does not exist. Empty: the user's own
	Hosts     []string // further names by which browsers reach the page, as through a tunnel
	URL       string   // as browsers elsewhere reach it; empty: the address
	ReadOnly  bool     // the printed link pairs a browser that may only read
}

// Device is a browser that is paired with the page.
type Device struct {
	ID     string    `json:"id"`
	Name   string    `json:"name"`
	Writes bool      `json:"writes"`
	Paired time.Time `json:"paired"`
}

// A2A says where and to whom the agents of the folder are offered by the Agent2Agent protocol.
type A2A struct {
	Listen    string   // address and port
	TokenFile string   // as in [Page]
	Hosts     []string // further names by which clients reach the server
	URL       string   // as clients elsewhere reach it; empty: the address
	Usual     string   // the agent of the server's own card

	Agents func() []OfferedAgent // those that are offered now
}

// OfferedAgent is an agent that is offered to others.
type OfferedAgent struct{ Name, Description string }

// usualAgent is the agent of the server's own card, if it is offered.
const usualAgent = "general-purpose"

// serveA2A offers the agents of the folder, or those that are named.
func (a *app) serveA2A(ctx context.Context, p Page, named []string) error {
	o := A2A{Listen: p.Listen, TokenFile: p.TokenFile, Hosts: p.Hosts, URL: p.URL, Usual: usualAgent}
	o.Agents = func() (offered []OfferedAgent) {
		for _, e := range a.Agents("", false).Entries() {
			if e.HiddenBy == "" && (len(named) == 0 || slices.Contains(named, e.Name)) {
				offered = append(offered, OfferedAgent{e.Name, excerpt.Line(e.Description, 1000)})
			}
		}
		return offered
	}
	all := o.Agents()
	has := func(name string) bool {
		return slices.ContainsFunc(all, func(e OfferedAgent) bool { return e.Name == name })
	}
	for _, name := range named {
		if !has(name) {
			return console.Usage("--agent: unknown agent "+excerpt.Line(name, 80), "see `drover agents`")
		}
	}
	if len(named) > 0 {
		o.Usual = named[0]
	}
	return a.ServeA2A(ctx, o)
}

// serve is the page in a browser, and the server for other agents.
func (a *app) serve() *cobra.Command {
	var o Page
	var a2a bool
	var named []string
	cmd := &cobra.Command{
		Use: "serve [--a2a] [--listen ADDR]",
		Long: "Serve a page that shows what needs you in all sessions of all projects, and every task with its state. Questions\n" +
			"are answered there too: an answer counts once, wherever it is given. The printed link pairs one browser, once,\n" +
			"within 10 minutes; further ones are made on the page, or pair with the token of the file. Whoever is paired to\n" +
			"write can run commands here. A phone reaches the page through a tunnel of your own: give its name with --url,\n" +
			"and a terminal shows the link as a QR code too.\n\n" +
			"With --a2a, offer the agents of this folder to other agents by the Agent2Agent protocol instead of a page. The\n" +
			"address of the agent card and the file with the token are printed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case a2a && o.ReadOnly:
				return console.Usage("--a2a and --read-only are mutually exclusive", "leave one of them out")
			case !a2a && len(named) > 0:
				return console.Usage("--agent needs --a2a", "as in `drover serve --a2a --agent NAME`")
			case a2a:
				if !cmd.Flags().Changed("listen") {
					o.Listen = "127.0.0.1:7484"
				}
				return a.serveA2A(cmd.Context(), o, named)
			}
			return a.ServePage(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7483",
		"address of this machine and port; port 0 for any; 127.0.0.1:7484 with --a2a")
	f.StringVar(&o.TokenFile, "token-file", "",
		"file with the token, of mode 0600; made if it does not exist (default: the user's own)")
	f.StringVar(&o.URL, "url", "", "address by which browsers elsewhere reach the page, as https://name.example")
	f.StringSliceVar(&o.Hosts, "host", nil, "further name by which browsers may ask for the page")
	f.BoolVar(&o.ReadOnly, "read-only", false, "the printed link pairs a browser that may only read")
	f.BoolVar(&a2a, "a2a", false, "offer the agents of this folder to other agents by the Agent2Agent protocol")
	f.StringSliceVar(&named, "agent", nil, "with --a2a: only this agent; the first one is that of the server's own card")
	cmd.AddCommand(a.serveDevices(), a.serveRevoke())
	return cmd
}

// tokenFlag names the token file of a page.
func tokenFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "token-file", "", "token file of the page (default: the user's own)")
}

func (a *app) serveDevices() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the browsers that are paired with the page",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := a.PageDevices(file)
			switch {
			case err != nil:
				return err
			case asJSON:
				return console.PrintJSON(a.Stdout, all)
			case len(all) == 0:
				a.Hint("no browser is paired (pair one: `drover serve`)")
				return nil
			}
			rows := [][]string{{"ID", "NAME", "MAY", "PAIRED"}}
			for _, d := range all {
				may := "read"
				if d.Writes {
					may = "read and write"
				}
				rows = append(rows, []string{d.ID, excerpt.Line(d.Name, 80), may, d.Paired.Local().Format("2006-01-02 15:04")})
			}
			return a.Table(rows, console.Headed)
		},
	}
	tokenFlag(cmd, &file)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) serveRevoke() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "revoke DEVICE",
		Short: "End the pairing of a browser, by its ID or name",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.RevokeDevice(cmd.Context(), file, args[0])
			if err != nil {
				return err
			}
			a.Hint(excerpt.Line(name, 80) + " is not paired any more")
			return nil
		},
	}
	tokenFlag(cmd, &file)
	return cmd
}
