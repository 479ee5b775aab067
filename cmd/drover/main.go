// Command drover runs, watches and steers the background work of coding agents.
//
// It picks a face for the words on its command line, wires it to a session, and
// turns signals into the ends of contexts. All else is in the packages it
// imports.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/platform/home"
)

// version is set by the linker.
var version = "0.1.0-dev" //house:constant the linker can set variables only

func main() { os.Exit(run()) }

func run() int {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "keeper" {
		return keep(args[1:])
	}
	log.SetOutput(io.Discard) // net/http writes there what a server sends against the rules, as it is
	ctx, stop := signals(context.Background())
	defer stop()
	w, err := newWorld()
	if err != nil {
		fmt.Fprintf(os.Stderr, "drover: %s\n", err)
		return 1
	}
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		args = []string{"version"}
	}
	cmd := w.command()
	switch {
	case isPrompt(args), len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) && isPrompt(args[1:]):
		cmd = w.promptCommand()
	case isResume(args):
		cmd = w.resumeCommand()
	}
	cmd.SetArgs(args)
	return cli.Execute(ctx, cmd, os.Stderr)
}

// interrupts gives the first INT to whoever wants it.
type interrupts struct {
	mu     sync.Mutex
	handle func()
}

type interruptsKey struct{}

// onInterrupt lets f have the first INT. It is called at most once.
func onInterrupt(ctx context.Context, f func()) {
	in := ctx.Value(interruptsKey{}).(*interrupts)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.handle = f
}

func (in *interrupts) take() func() {
	in.mu.Lock()
	defer in.mu.Unlock()
	f := in.handle
	in.handle = nil
	return f
}

// signals ends the context by INT, TERM or HUP, but for a first INT that
// somebody wants.
func signals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	in := &interrupts{}
	ctx = context.WithValue(ctx, interruptsKey{}, in)
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	// A reader that went away is an error of a write. What is passed over is caught
	// and not ignored, since ignoring would be inherited by every command.
	passed := make(chan os.Signal, 1)
	signal.Notify(passed, syscall.SIGPIPE)
	hup := ch
	if signal.Ignored(syscall.SIGHUP) { // by nohup
		hup = passed
	}
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan struct{})
	go func() { // ends with stop, which waits for it
		defer close(done)
		for s := range ch {
			if f := in.take(); f != nil && s == syscall.SIGINT {
				f()
				continue
			}
			cancel(&cli.ExitError{Code: 128 + int(s.(syscall.Signal))})
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		cancel(nil)
	}
}

// world is what this process has around it.
type world struct {
	env    []string
	cwd    string // the project's folder
	from   string // where the user is, if that is another folder
	root   home.Root
	stderr io.Writer
}

func newWorld() (*world, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working folder: %w (change to one that exists)", err)
	}
	root, err := home.Find(os.Getenv)
	if err != nil {
		return nil, err
	}
	return &world{env: os.Environ(), cwd: cwd, root: root, stderr: os.Stderr}, nil
}

func (w *world) command() *cobra.Command {
	return cli.New(w.deps())
}

func (w *world) deps() cli.Deps {
	return cli.Deps{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env: w.env, Cwd: w.cwd, Version: version,
		Sessions:   &sessions{w},
		Export:     w.export,
		Old:        w.old,
		Discard:    w.discard,
		Repair:     w.repair,
		IsTerminal: isTerminal,
		Converse:   w.attachable, OnInterrupt: onInterrupt,
		Extra:      []*cobra.Command{w.hostCommand(), w.mcpCommand(), w.agentCommand(), w.monitorCommand(), w.agentsCommand(), w.demoCommand(), w.permissionsCommand(), w.statsCommand(), w.trustCommand(), w.todoCommand(), w.remoteCommand(), w.teleportCommand(), w.memoryCommand(), w.workflowCommand(), w.modelsCommand()},
		Judgements: []*cobra.Command{stallCommand()},
		Root:       w.summary,
		Models:     w.completeModels,
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), termios)
	return err == nil
}

// columns is how wide the terminal is, or 0 of what is none.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// program is the path of this program, for processes of its own.
func program() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", errors.Join(errors.New("find this program"), err)
	}
	return exe, nil
}
