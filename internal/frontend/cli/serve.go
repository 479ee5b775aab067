package cli

import (
	"github.com/spf13/cobra"
)

// Page says where and to whom the page in a browser is served.
type Page struct {
	Listen    string   // address and port
	TokenFile string   // has the token; made with a new one if it does not exist. Empty: the user's own
	Hosts     []string // further names by which browsers reach the page, as through a tunnel
	URL       string   // as browsers elsewhere reach it; empty: the address
	ReadOnly  bool     // the printed link pairs a browser that may only read
}

// serve is the page in a browser.
func (a *app) serve() *cobra.Command {
	var o Page
	cmd := &cobra.Command{
		Use:   "serve [--listen ADDR]",
		Short: "Serve a page that shows and steers all sessions in a browser",
		Long: "Serve a page that shows what needs you in all sessions of all projects, and every task with its state. Questions\n" +
			"are answered there too: an answer counts once, wherever it is given. The printed link pairs one browser, once,\n" +
			"within 10 minutes; further ones are made on the page, or pair with the token of the file. Whoever is paired to\n" +
			"write can run commands here. A phone reaches the page through a tunnel of your own: give its name with --url,\n" +
			"and a terminal shows the link as a QR code too.",
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.ServePage(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7483", "address of this machine and port; port 0 for any")
	f.StringVar(&o.TokenFile, "token-file", "", "file with the token, of mode 0600; made if it does not exist (default: the user's own)")
	f.StringVar(&o.URL, "url", "", "address by which browsers elsewhere reach the page, as https://name.example")
	f.StringSliceVar(&o.Hosts, "host", nil, "further name by which browsers may ask for the page")
	f.BoolVar(&o.ReadOnly, "read-only", false, "the printed link pairs a browser that may only read")
	return cmd
}
