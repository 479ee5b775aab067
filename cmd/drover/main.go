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
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/keeper/roles"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/frontend/cli"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/platform/buildinfo"
	"github.com/drover-dev/drover/internal/platform/home"
)

func main() { os.Exit(runWords()) }

func runWords() int {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "keeper" { // no command of the tree, so that nothing else is set up in it
		return keep(args[1:])
	}
	if os.Getpid() == 1 {
		return first()
	}
	log.SetOutput(io.Discard) // net/http logs malformed responses there, unescaped
	ctx, stop := signals(context.Background())
	defer stop()
	b, err := workingFolder()
	if err != nil {
		fmt.Fprintf(os.Stderr, "drover: %s\n", err)
		return 1
	}
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		args = []string{"version"}
	}
	var cmd *cobra.Command
	if len(args) > 0 && args[0] == "host" {
		cmd, args = prompts{b}.hostCommand(), args[1:]
	} else {
		args = prompt.KnownFlags(args, os.Stderr)
		cmd = cli.Command(b.deps(), args)
	}
	cmd.SetArgs(args)
	return cli.Execute(ctx, cmd, os.Stderr)
}

// keep is `drover keeper`: a process that stays alive for others.
func keep(words []string) int {
	exe, err := program()
	if err != nil {
		fmt.Fprintf(os.Stderr, "drover: %s\n", err)
		return 1
	}
	return roles.Run(exe, words)
}

// first runs the program as a child of the first process of a container, which has to reap what
// others leave.
func first() int {
	exe, err := program()
	var exit process.Exit
	if err == nil {
		exit, err = keeper.RunFirst(exe, os.Args)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "drover: %s\n", err)
		return 1
	}
	if exit.Signal != 0 {
		return 128 + int(exit.Signal)
	}
	return exit.Code
}

// interrupts passes the next SIGINT to the handler that waits for it.
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

// signals ends the context with SIGINT, SIGTERM or SIGHUP. A SIGINT goes to a handler first, if one
// waits.
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
			cancel(&console.ExitError{Code: 128 + int(s.(syscall.Signal))})
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		cancel(nil)
	}
}

// folder is a folder in which this process works, with its environment. The types in ports.go
// implement what the command line and other frontends need, each for one of them.
type folder struct {
	exe       string // this program
	version   string
	env       []string
	cwd       string // the project's folder
	elsewhere bool   // that is not where the user is
	root      home.Root
	stderr    io.Writer

	trustNoted bool // the user has been told that files wait for trust
}

// workingFolder is the folder of this process.
func workingFolder() (*folder, error) {
	exe, err := program()
	if err != nil {
		return nil, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working folder: %w (change to one that exists)", err)
	}
	root, err := home.Find(os.Getenv)
	if err != nil {
		return nil, err
	}
	return &folder{exe: exe, version: buildinfo.Version(), env: os.Environ(), cwd: cwd, root: root, stderr: os.Stderr}, nil
}

func (b *folder) deps() cli.Deps {
	c := console.Console{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env: b.env, Cwd: b.cwd, Version: b.version, Root: b.root, Folder: b,
		OnInterrupt: onInterrupt, IsTerminal: isTerminal, OpenTerminal: openTerminal,
		Columns: func() int { return columns(os.Stdout) },
	}
	return cli.Deps{Console: c, Root: screens{b}, Prompt: prompts{b}, Run: runner{b}, Watch: servers{b},
		Attention: attending{b}, Agents: surroundings{b}, Machines: hubs{b}, Project: storage{b}, Setup: doctor{b}}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), termios)
	return err == nil
}

// columns is the width of a terminal, or 0 for other files.
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
