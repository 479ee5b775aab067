// Package roles is the keeper as a program. The words after `keeper` choose a role: each is a process that stays alive
// for others. `drover keeper` and drover-keeper have the same roles; the second starts in a fraction of the time, since
// it links nothing else.
package roles

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/sandbox"
	"github.com/drover-dev/drover/internal/engine/tty"
)

// Words after `keeper`. Without any it is the parent of a host. With Terminal a name follows.
const (
	Helper   = "--helper"
	Room     = "--room"
	Terminal = "--tty"
)

// Run has a role until that ends, and returns the exit code of the program. A host is started as `program host`. A
// terminal that closes does not end the process.
func Run(program string, words []string) int {
	// So `pkill drover` and `killall drover` leave it to do its work. It can do without.
	_ = process.SetName("task-keeper")
	if err := run(program, words); err != nil {
		fmt.Fprintf(os.Stderr, "drover: keeper: %s\n", err)
		return 1
	}
	return 0
}

func run(program string, words []string) error {
	if slices.Equal(words, []string{Helper}) {
		return keeper.RunHelper(context.Background()) // which ignores signals
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch {
	case slices.Equal(words, []string{Room}):
		return sandbox.RunStarter()
	case len(words) == 2 && words[0] == Terminal:
		return tty.Run(words[1])
	}
	_, err := keeper.RunParent(ctx, keeper.Config{Args: []string{program, "host"}, Dir: "/", Stdout: os.Stdout,
		Stderr: os.Stderr})
	return err
}
