package project

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// Removal is what became of an old session.
type Removal struct {
	Session task.ID
	Owed    int    // notifications that were never delivered
	Kept    string // why it was not removed; empty: it was
}

// noAge is the flag --old without a value.
const noAge = " "

// removeOld is `drover sessions rm --old`. The age may be the next word, too.
func (a *app) removeOld(cmd *cobra.Command, age string, words []string, all bool) error {
	if age == noAge {
		age = ""
	}
	if age == "" && len(words) == 1 {
		age, words = words[0], nil
	}
	if len(words) > 0 {
		return console.Usage("--old and SESSION are mutually exclusive", "see `drover sessions rm --help`")
	}
	gone, err := a.RemoveOld(cmd.Context(), age, all)
	for _, r := range gone {
		id := console.Cell(string(r.Session), 40)
		if r.Kept != "" {
			a.Note("session %s is kept: %s", id, r.Kept)
			continue
		}
		line := id
		if r.Owed > 0 {
			line += fmt.Sprintf("  (%d notifications were never delivered)", r.Owed)
		}
		if _, err := fmt.Fprintln(a.Stdout, line); err != nil {
			return err
		}
	}
	return err
}
