package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/keeper/roles"
	"github.com/drover-dev/drover/internal/engine/tty"
)

// copier is the program that holds the terminals of commands.
func (b *folder) copier() []string { return b.keeper(roles.Terminal) }

// lookAt connects the terminal of the user, if stdin is one, with the terminal of a command: until
// restore is called, keys pass unchanged, and the command has the size of the user's terminal.
func lookAt(c *shell.Client) (restore func(), err error) {
	out, ok := c.Tee.Stdout.(*os.File)
	if c.Stdin == nil || !ok || !isTerminal(c.Stdin) || !isTerminal(out) {
		return func() {}, nil
	}
	back, err := tty.Raw(c.Stdin)
	if err != nil {
		return nil, err
	}
	sizes, changed, done := make(chan tty.Size, 1), make(chan os.Signal, 1), make(chan struct{})
	sizes <- tty.SizeOf(out)
	c.Sizes = sizes
	signal.Notify(changed, syscall.SIGWINCH)
	go func() { // ends with restore, which waits for it
		defer close(done)
		for range changed {
			select {
			case <-sizes: // an unread size is outdated
			default:
			}
			sizes <- tty.SizeOf(out)
		}
	}()
	return func() {
		signal.Stop(changed)
		close(changed)
		<-done
		back()
	}, nil
}
