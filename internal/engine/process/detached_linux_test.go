package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// The keeper of a detached host stays, with all below it, when what it was started
// in is ended; who only says that he is one goes.
func TestDetached(t *testing.T) {
	const says = `sleep 1000 & echo $! $$; wait`
	for name, c := range map[string]struct {
		args  []string
		group bool // and no session of its own
		stays bool
	}{
		"keeper":  {args: []string{os.Args[0], "keeper"}, stays: true},
		"beside":  {args: []string{os.Args[0], "keeper"}, group: true},
		"claims":  {args: []string{"sh", "-c", says}},
		"word":    {args: []string{"bash", "keeper"}},
		"program": {args: self("keeper")}, // Drover, but no keeper
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "keeper"), []byte(says), 0o600); err != nil {
				t.Fatal(err)
			}
			role := "starter"
			if c.group {
				role = "starter-group"
			}
			g, words := announced(t, 2, process.Command{Args: append(self(role), c.args...), Dir: dir})
			below, keeper := number(t, words[0]), number(t, words[1])
			table := new(process.Table)
			size := process.NewFamilies(table.Read()).Size(g.Identity(), "")
			g.End(context.Background(), process.Ending{Grace: time.Second, Table: table})
			for _, id := range []process.Identity{below, keeper} {
				if process.Alive(id) != c.stays {
					t.Errorf("process %d lives: %v", id.PID, !c.stays)
				}
			}
			if want := map[bool]int{true: 1, false: 3}[c.stays]; size != want {
				t.Errorf("it has %d processes, want %d", size, want)
			}
			// Who means the keeper itself gets it, and what is below it.
			meant, err := process.Adopt(keeper)
			if errors.Is(err, process.ErrGone) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer meant.Close()
			meant.End(context.Background(), process.Ending{})
			if process.Alive(below) || process.Alive(keeper) {
				t.Error("it cannot be ended")
			}
		})
	}
}
