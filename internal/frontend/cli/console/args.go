package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/catalog"
)

// Args checks the number of words of a command. A negative most is no limit.
func Args(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		switch {
		case len(words) < least:
			return Usage("an argument is missing", "usage: "+cmd.UseLine())
		case most >= 0 && len(words) > most && cmd.HasSubCommands():
			return Usage(fmt.Sprintf("unknown command %q for %q", words[most], cmd.CommandPath()),
				"see `"+cmd.CommandPath()+" --help`")
		case most >= 0 && len(words) > most:
			return Usage(fmt.Sprintf("unexpected argument %q", words[most]), "usage: "+cmd.UseLine())
		}
		return nil
	}
}

// maxTimeout is beyond any use, and far from overflow.
const maxTimeout = 365 * 24 * time.Hour

// Duration reads a time such as 90s, 10m or 1h30m; a bare number is seconds.
func Duration(flag, text string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil {
		return 0, Usage(fmt.Sprintf("%s %q: not a duration", flag, text), "write it as 90s, 10m or 1h30m")
	}
	if d < least || d > maxTimeout {
		return 0, Usage(fmt.Sprintf("%s %s: out of range", flag, text),
			fmt.Sprintf("from %s to %s", least, strings.TrimSuffix(maxTimeout.String(), "0m0s")))
	}
	return d, nil
}

// PermissionModes are the values of --permission-mode.
func PermissionModes() []string {
	var out []string
	for _, m := range policy.Modes() {
		out = append(out, string(m))
	}
	return out
}

// CheckMode refuses an unknown mode, and resolves a synonym.
func (a *Console) CheckMode(mode string) (string, error) {
	if mode == string(policy.Auto) {
		fmt.Fprintln(a.Stderr, "drover: note: permission mode auto means default")
		return "", nil
	}
	if mode != "" && !slices.Contains(PermissionModes(), mode) {
		return "", Usage(fmt.Sprintf("--permission-mode %q: unknown mode", mode),
			"use "+strings.Join(PermissionModes(), ", "))
	}
	return mode, nil
}

// CheckToolNames refuses rules for unknown tools. where names the place of the rules.
func CheckToolNames(where string, lists ...[]string) error {
	for _, rule := range slices.Concat(lists...) {
		if tool := policy.ToolOf(rule); tool != "" && !policy.Absent(tool) && !catalog.KnownTool(tool) {
			return Usage(fmt.Sprintf("%s: permission rule %.80q: unknown tool %.40q", where, rule, tool),
				"the tools are "+strings.Join(catalog.ToolNames(), ", ")+", and mcp__SERVER__TOOL")
		}
	}
	return nil
}

// PromptFormats are the values of --output-format; the first is the default.
func PromptFormats() []string { return []string{"text", "json", "stream-json"} }

// SplitRules reads rules that are separated by commas or blanks outside
// brackets.
func SplitRules(lists []string) []string {
	var out []string
	for _, list := range lists {
		depth, from := 0, 0
		for i, r := range list + "," {
			switch {
			case r == '(':
				depth++
			case r == ')':
				depth--
			case (r == ',' || r == ' ') && depth <= 0:
				if rule := strings.TrimSpace(list[from:i]); rule != "" {
					out = append(out, rule)
				}
				from = i + 1
			}
		}
		// An open bracket makes a bad rule, which is refused by name: a deny rule that
		// vanished would allow.
		if depth > 0 {
			out = append(out, strings.TrimSpace(list[from:]))
		}
	}
	return out
}

// AllSessionsFlag adds the flag --all-sessions.
func AllSessionsFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("all-sessions", false, "look in the sessions of all projects too")
}
