package agents

import (
	"fmt"
	"os"
	"slices"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/engine/sandbox"
)

// RunKeeper is [drover.RunKeeper] for a program with agents: it also starts commands in the sandbox of a session, if
// this process was started for that by a runtime with [drover.Keeper].
func RunKeeper() {
	if !slices.Equal(os.Args[1:], []string{bare.KeeperArg, bare.RoomArg}) {
		drover.RunKeeper()
		return
	}
	if err := sandbox.RunStarter(); err != nil {
		fmt.Fprintf(os.Stderr, "sandbox: %s\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}
