package steer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

func (a *app) forward() *cobra.Command {
	cmd := &cobra.Command{
		Use: "forward [--session S] [--end] [--json] [PORT[:HOSTPORT]]",
		Long: "Let this machine reach a port on which sandboxed commands of a live session listen, by default of the only\n" +
			"one of this folder. Their localhost is their own: a server that an agent has started is reached at\n" +
			"127.0.0.1:HOSTPORT, by default the same number, until the session ends or --end. Without a port the\n" +
			"command lists what is forwarded.",
		Args: console.Args(0, 1),
	}
	f := cmd.Flags()
	session := f.String("session", "", "the session whose commands listen")
	end := f.Bool("end", false, "forward the port no more, and close its connections")
	asJSON := f.Bool("json", false, "print what is forwarded as JSON")
	all := console.AllSessionsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		var req control.ForwardRequest
		if len(words) > 0 {
			inside, outside, both := strings.Cut(words[0], ":")
			var err error
			if req.Port, err = port(inside); err == nil && both {
				req.HostPort, err = port(outside)
			}
			if err != nil {
				return err
			}
			req.End = *end
		} else if *end {
			return console.Usage("--end requires a port", "usage: drover forward --end PORT")
		}
		ctx := cmd.Context()
		s, err := a.sandboxed(ctx, *session, *all)
		if err != nil {
			return err
		}
		got, err := console.Ask(ctx, s.Open, func(api control.API) (control.Forwards, error) { return api.Forward(ctx, req) })
		switch {
		case err != nil:
			return err
		case *asJSON:
			return console.PrintJSON(a.Stdout, got.Forwards)
		case len(got.Forwards) == 0 && req.Port == 0:
			return a.Println("No ports are forwarded. Forward one with `drover forward PORT`.")
		}
		for _, f := range got.Forwards {
			if req.Port == 0 || req.Port == f.Port {
				line := fmt.Sprintf("%s -> port %d of session %s", f.Address, f.Port, s.Info().Session)
				if f.Connections > 0 {
					line += fmt.Sprintf(", %d open connections", f.Connections)
				}
				if _, err := fmt.Fprintln(a.Stdout, line); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return cmd
}

func port(word string) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 || n > 65535 {
		return 0, console.Usage(fmt.Sprintf("%.40q is not a port", word),
			"give a number from 1 to 65535, such as 3000 or 3000:8080")
	}
	return n, nil
}

// sandboxed returns the named live session, or the only one.
func (a *app) sandboxed(ctx context.Context, word string, all bool) (console.Session, error) {
	if word != "" {
		return a.host(ctx, word, all)
	}
	known, err := a.Known(ctx, true, all)
	if err != nil {
		return nil, err
	}
	live := slices.DeleteFunc(slices.Clone(known), func(s console.Session) bool { return !s.Info().Live })
	switch len(live) {
	case 1:
		return live[0], nil
	case 0:
		return nil, console.Missing("this folder has no live session", "see `drover sessions`")
	}
	return nil, a.SeveralLive(ctx, live, "drover forward PORT --session SESSION")
}
