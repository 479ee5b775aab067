// Command drover-keeper has the roles of `drover keeper` in a small program, for processes that stay alive as long as a
// session: `drover` starts it if it is in the same folder. One of another build starts the drover that has called it in
// its own place, so that both ends of a connection are always of one build.
package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/drover-dev/drover/internal/engine/keeper/roles"
	"github.com/drover-dev/drover/internal/platform/buildinfo"
)

// usage is the exit code for wrong arguments, as drover has it.
const usage = 2

func main() { os.Exit(run(os.Args)) }

// run is `drover-keeper keeper DROVER BUILD [ROLE]`, or `drover-keeper --build`.
func run(args []string) int {
	id := buildinfo.ID()
	switch {
	case len(args) == 2 && args[1] == "--build":
		fmt.Println(id)
		return 0
	case len(args) < 4 || args[1] != "keeper":
		fmt.Fprintln(os.Stderr, "drover-keeper: drover starts this program (see `drover doctor`)")
		return usage
	}
	drover, words := args[2], args[4:]
	if id != "" && id == args[3] {
		return roles.Run(drover, words)
	}
	if err := syscall.Exec(drover, slices.Concat([]string{drover, args[1]}, words), os.Environ()); err != nil {
		fmt.Fprintf(os.Stderr, "drover: keeper: start %s: %s\n", drover, err)
	}
	return 1
}
