package setup

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// SandboxCheck is a bound of the sandbox that was tried.
type SandboxCheck struct {
	Bound string `json:"bound"`
	By    string `json:"by,omitempty"` // the mechanism that should hold it
	Holds bool   `json:"holds"`
	Text  string `json:"text"` // the attempt and its outcome
}

// doctorSandbox tries the sandbox of commands.
func (a *app) doctorSandbox() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox [--json | --seatbelt]",
		Short: "Try the sandbox of commands on this machine",
		Long: `Try the sandbox of commands on this machine.

Commands are started in a sandbox, as those of models are where the setting sandbox.mode
is best or required, and try to leave it. The exit code is 1 if a bound does not hold.

With --seatbelt nothing is tried: the bounds of a command in this folder are printed as a profile for
sandbox-exec of macOS. It is an experiment that has never run on a mac; Drover starts no command with it.`,
	}
	asJSON := cmd.Flags().Bool("json", false, "a JSON array")
	seatbelt := cmd.Flags().Bool("seatbelt", false, "print a profile for sandbox-exec of macOS, and try nothing")
	cmd.MarkFlagsMutuallyExclusive("json", "seatbelt")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *seatbelt {
			text, err := a.Seatbelt()
			if err == nil {
				_, err = io.WriteString(a.Stdout, text)
			}
			return err
		}
		checks, err := a.TrySandbox(cmd.Context())
		if err != nil {
			return err
		}
		bad := 0
		rows := [][]string{{"BOUND", "STATE", "BY", "TRIED"}}
		for _, c := range checks {
			state := "ok"
			if !c.Holds {
				state, bad = "error", bad+1
			}
			rows = append(rows, []string{c.Bound, state, cmp.Or(c.By, "-"), console.Cell(c.Text, 200)})
		}
		if *asJSON {
			err = console.PrintArray(a.Stdout, checks)
		} else {
			err = a.Table(rows, console.ByState(rows, "STATE"))
		}
		if err == nil && bad > 0 {
			return &console.ExitError{Code: console.CodeFailed,
				Err: fmt.Errorf("%d of %d bounds do not hold (the setting sandbox.mode required would start no command here)", bad,
					len(checks))}
		}
		return err
	}
	return cmd
}
