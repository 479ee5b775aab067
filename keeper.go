package drover

import (
	"context"
	"fmt"
	"os"

	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/engine/keeper"
	"github.com/drover-dev/drover/internal/engine/process"
)

// Keeper is the command that starts this program as a keeper, for [Config.Keeper]. Its
// main function must call [RunKeeper] first.
func Keeper() ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start it as a keeper: %w", err)
	}
	return []string{exe, bare.KeeperArg}, nil
}

// RunKeeper does the work of a keeper, if this process was started for that by a runtime with
// [Keeper], and then exits. In any other process it returns at once. A keeper outlives the
// program that started it until it has ended the commands of that program. Call RunKeeper at
// the beginning of main, before flags are parsed. A program with agents calls the function of
// package agents instead.
func RunKeeper() {
	if len(os.Args) != 2 || !isKeeper(os.Args) {
		return
	}
	// So `pkill` of the program's name leaves it to do its work. It can do without.
	_ = process.SetName("task-keeper")
	if err := keeper.RunHelper(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "keeper: %s\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// isKeeper reports whether a program with these arguments is a keeper, or the starter of the
// sandbox of a session.
func isKeeper(args []string) bool { return len(args) >= 2 && args[1] == bare.KeeperArg }
