package setup

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

func (a *app) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor [--json]",
	}
	cmd.AddCommand(a.stall(), a.doctorSandbox())
	asJSON := cmd.Flags().Bool("json", false, "a JSON array")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		findings := a.Doctor(cmd.Context())
		bad := 0
		rows := [][]string{{"CHECK", "STATE", "DETAIL", "FIX"}}
		for _, f := range findings {
			if f.Level == console.Bad {
				bad++
			}
			rows = append(rows, []string{console.Cell(f.Check, 40), string(f.Level), console.Cell(f.Detail, 200),
				console.Cell(f.Fix, 200)})
		}
		var err error
		if *asJSON {
			err = console.PrintArray(a.Stdout, findings)
		} else {
			err = a.Table(rows, console.ByState(rows, "STATE"))
		}
		if err == nil && bad > 0 {
			return &console.ExitError{Code: console.CodeFailed, Err: fmt.Errorf("%d of %d checks found an error", bad,
				len(findings))}
		}
		return err
	}
	return cmd
}

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version [--json]",
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := struct {
			Version  string `json:"version"`
			Commit   string `json:"commit,omitempty"`
			Go       string `json:"go"`
			OS       string `json:"os"`
			Arch     string `json:"arch"`
			Protocol string `json:"protocol"`
		}{Version: a.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Protocol: control.Protocol}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					v.Commit = s.Value
				}
			}
		}
		if *asJSON {
			return console.PrintJSON(a.Stdout, v)
		}
		return a.Printf("drover %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
	}
	return cmd
}
