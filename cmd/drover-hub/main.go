// Command drover-hub is the hub of a user, which `drover hub` starts. It is a program of its own since the server of NATS
// in it would add a quarter to the size of drover and to the work of its every start.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/drover-dev/drover/internal/fleet/hub"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/members"
	"github.com/drover-dev/drover/internal/platform/buildinfo"
	"github.com/drover-dev/drover/internal/platform/home"
)

// The exit codes for failures and for wrong usage, as drover has them.
const (
	failed = 125
	usage  = 2
)

func main() { os.Exit(run()) }

func run() int {
	words := flag.NewFlagSet("drover-hub", flag.ExitOnError)
	of := words.String("of", "", "the build of drover that starts this program (default: any)")
	listen := words.String("listen", "127.0.0.1:7484", "address and port; port 0 for any")
	address := words.String("address", "", "host and port by which other machines reach it, for the printed line")
	_ = words.Parse(os.Args[1:]) // exits
	if words.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "drover-hub: unknown word %.80q (see `drover hub --help`)\n", words.Arg(0))
		return usage
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that went away is an error of a write
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	if err := serve(ctx, *of, *listen, *address); err != nil {
		fmt.Fprintf(os.Stderr, "drover: %s\n", err)
		return failed
	}
	return 0
}

// serve is the hub until ctx ends.
func serve(ctx context.Context, of, listen, address string) error {
	version := buildinfo.Version()
	if mine := cmp.Or(buildinfo.ID(), version); of != "" && of != mine {
		exe, _ := os.Executable()
		return fmt.Errorf("start the hub: %s is of build %s and drover of %s (install both of one build)", exe, mine, of)
	}
	root, err := home.Find(os.Getenv)
	if err != nil {
		return err
	}
	name, _ := os.Hostname()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	h, err := hub.Open(ctx, hub.Config{Root: root, Dir: members.Dir(root), Name: name, Listen: listen, Log: log})
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Describe(ctx, version); err != nil {
		return err
	}
	join, err := h.Join(ctx, members.DefaultProject, link.RoleWorker, address)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("hub at %s\nworkers join by: drover worker --hub '%s'\n", h.Address(), join)
	if err == nil {
		<-ctx.Done()
	}
	if errors.Is(err, syscall.EPIPE) { // the reader went away
		return nil
	}
	return err
}
