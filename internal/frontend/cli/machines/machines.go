package machines

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/overssh"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Hub says where a hub listens.
type Hub struct {
	Listen  string
	Address string // as workers elsewhere reach it; empty: where it listens
}

// Invitation is for whom a line is made.
type Invitation struct {
	Project string
	Session bool   // for sessions of another machine, not for a worker
	Address string // as the other machine reaches the hub; empty: where it listens
}

// HubStatus is how a hub is.
type HubStatus struct {
	Address  string   `json:"address"`
	Project  string   `json:"project,omitempty"`
	TLS      bool     `json:"tls"`
	Server   string   `json:"server_version"`
	Workers  int      `json:"workers"`
	Waiting  uint64   `json:"offers_waiting"`
	Untaken  uint64   `json:"events_not_taken"`
	Bytes    uint64   `json:"stored_bytes"`
	Problems []string `json:"problems,omitempty"`
}

// Worker is how a worker works.
type Worker struct {
	// Join is a line, a file that has one, or the URL of a NATS cluster; empty: the cluster of the settings, or the
	// user's own hub.
	Join     string
	Creds    string // file with the credentials for the cluster; empty: the file of the settings, if any
	Name     string // empty: the name of the machine
	Labels   []string
	Capacity int // 0: the processors of the machine

	Via    string // the other machine on which it is made; empty: this one
	Binary string // file of the program for that; empty: this program
	Stdio  bool   // the end of Via on that machine
	Daemon bool   // the worker that Stdio starts
}

func (a *app) hub() *cobra.Command {
	var o Hub
	cmd := &cobra.Command{
		Use: "hub [--listen ADDR] [--address HOST:PORT]",
		Long: "Run the hub of this user until Ctrl-C: a server of NATS with JetStream, through which sessions hand tasks to\n" +
			"workers on other machines. It is a program of its own, drover-hub, which is beside drover or on the PATH. It prints\n" +
			"the line by which a worker joins; keep that as you keep a password. Beyond the loopback address it speaks TLS, with\n" +
			"a certificate that it makes at its first start and that the line names. See `drover worker` and `drover run --on`.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return console.DroverFailed(cmd.Context(), a.ServeHub(o))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7484", "address and port; port 0 for any")
	f.StringVar(&o.Address, "address", "", "host and port by which other machines reach it, for the printed line")
	cmd.AddCommand(a.hubJoin(), a.hubStatus())
	return cmd
}

func (a *app) hubJoin() *cobra.Command {
	var o Invitation
	cmd := &cobra.Command{
		Use:   "join [--project NAME] [--session] [--address HOST:PORT]",
		Short: "Print a line by which another worker joins the hub",
		Long:  "Print a line by which a worker joins a project of the running hub, or with --session the sessions of another\nmachine. A worker sees offers of its own project only, and of the work only what it has claimed.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			line, err := a.Invite(cmd.Context(), o)
			if err != nil {
				return err
			}
			return a.Println(line)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Project, "project", "main", "small letters, digits and -; a new one is made")
	f.BoolVar(&o.Session, "session", false, "for the setting workers.hub of another machine, not for a worker")
	f.StringVar(&o.Address, "address", "", "host and port by which the other machine reaches the hub")
	return cmd
}

func (a *app) hubStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [--json]",
		Short: "Show how the hub is",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.HubStatus(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return console.PrintJSON(a.Stdout, s)
			}
			secure := "no TLS, this machine only"
			if s.TLS {
				secure = "TLS"
			}
			_, err = fmt.Fprintf(a.Stdout,
				"hub at %s (%s), NATS %s, project %s\n%d workers, %d tasks wait for one, %d events not taken yet, %s stored\n",
				s.Address, secure, s.Server, s.Project, s.Workers, s.Waiting, s.Untaken, console.Size(int64(s.Bytes)))
			for _, p := range s.Problems {
				_, _ = fmt.Fprintln(a.Stdout, "problem:", p)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) worker() *cobra.Command {
	var o Worker
	cmd := &cobra.Command{
		Use: "worker [--via ssh://HOST] [--hub LINE|FILE|URL] [--name NAME] [--label LABEL]… [--capacity N]",
		Long: "Take tasks from a hub and do them on this machine until Ctrl-C, which ends them. Each is a task of a session of this\n" +
			"worker too: `drover ps` here shows it, and it ends with the worker. A worker that can reach the session of a task no\n" +
			"more ends the task when its lease has passed. Without --hub it joins the hub of this user on this machine.\n\n" +
			"With --via the worker is on another machine, over ssh as you have set it up: nothing has to be installed or opened\n" +
			"there. This program is copied to ~/.cache/drover there, and its connection to the hub runs through ssh. While that\n" +
			"is interrupted the worker continues for twice the lease, and ssh connects again. The variable DROVER_SSH is the\n" +
			"command that is run instead of ssh, such as \"ssh -F FILE\".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Binary != "" && o.Via == "" {
				return console.Usage("--binary needs --via", "it is the program for the machine that --via names")
			}
			if err := o.defaultName(); err != nil {
				return err
			}
			return console.DroverFailed(cmd.Context(), a.Work(cmd.Context(), o))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Join, "hub", "",
		"line that drover hub has printed, or a file that has it, which other users of this machine cannot see;\nor the URL of a NATS cluster, nats://HOST:PORT")
	f.StringVar(&o.Creds, "credentials", "",
		"file with the credentials for the cluster (default: the setting workers.credentials)")
	f.StringVar(&o.Name, "name", "", "by which run --on means this worker (default: the name of its machine)")
	f.StringSliceVar(&o.Labels, "label", nil, "further word by which run --on means it, such as gpu")
	f.IntVar(&o.Capacity, "capacity", 0, "tasks at the same time (default: one for each processor)")
	f.StringVar(&o.Via, "via", "", "the machine of the worker, ssh://[user@]host[:port] (default: this one)")
	f.StringVar(&o.Binary, "binary", "", "drover for that machine, if its system or processor is another one than here")
	f.BoolVar(&o.Stdio, "stdio", false, "the end of --via on the other machine, which starts it (internal)")
	f.BoolVar(&o.Daemon, "daemon", false, "the worker that --stdio starts (internal)")
	f.Lookup("stdio").Hidden, f.Lookup("daemon").Hidden = true, true
	return cmd
}

// defaultName names the worker after its machine.
func (o *Worker) defaultName() error {
	if o.Via == "" && o.Name == "" {
		o.Name = console.HostName()
	}
	if o.Via == "" {
		return nil
	}
	h, err := overssh.ParseHost(o.Via)
	if err != nil {
		return console.Usage(err.Error(), "")
	}
	o.Name = cmp.Or(o.Name, h.WorkerName())
	return nil
}

func (a *app) workers() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "workers [--json]",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.Workers(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				if all == nil {
					all = []fleetwire.Worker{}
				}
				return console.PrintJSON(a.Stdout, map[string]any{"workers": all})
			}
			if len(all) == 0 {
				return a.Println("No workers. Start one with `drover worker --via ssh://HOST`, or with `drover worker --hub LINE` " +
					"on that machine (see `drover hub join`).")
			}
			rows := [][]string{{"NAME", "TASKS", "LOAD", "LABELS", "SYSTEM", "VERSION", "STATE"}}
			for _, w := range all {
				load := "-"
				if w.Load >= 0 {
					load = fmt.Sprintf("%.0f%%", 100*w.Load)
				}
				state := w.State()
				if w.Problem != "" {
					state += ": " + excerpt.Line(w.Problem, 120)
				}
				if _, err := fleetwire.Speaks("it", w.Oldest, w.Newest); err != nil {
					state = err.Error()
				}
				rows = append(rows, []string{w.Name, fmt.Sprintf("%d/%d", len(w.Tasks), w.Capacity), load,
					excerpt.Line(strings.Join(w.Labels, ","), 60), excerpt.Line(w.System, 30), excerpt.Line(w.Version, 30), state})
				for _, d := range w.Tasks {
					since := time.Duration(d.Since) * time.Millisecond
					rows = append(rows, []string{"  " + excerpt.Line(string(d.Task), 20), excerpt.Line(d.Name, 40), "",
						console.Span(since), "", "", ""})
				}
			}
			return a.Table(rows, console.Headed)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) drain() *cobra.Command {
	return &cobra.Command{
		Use:  "drain WORKER",
		Args: console.Args(1, 1),
		RunE: func(cmd *cobra.Command, words []string) error { return a.Drain(cmd.Context(), words[0]) },
	}
}
