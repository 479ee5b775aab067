package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func (w *world) demoCommand() *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "A tour without any key", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return errors.New("not yet") }}
}
