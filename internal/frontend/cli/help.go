package cli

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// examples are command lines for help. Each is of the command that it runs.
//
//go:embed examples.txt
var examples string //rules:constant a file

// addExamples gives the commands below root their examples. A command with few of its own also has the
// first ones of the commands below it.
func addExamples(root *cobra.Command) {
	lines := map[*cobra.Command][]string{}
	for line := range strings.Lines(examples) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.Fields(line[strings.LastIndex(line, "drover ")+len("drover "):])
		if line == "drover" {
			words = nil
		}
		cmd := root
		for _, word := range words {
			name := strings.Trim(word, `)"`)
			below := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
			if below < 0 {
				break
			}
			cmd = cmd.Commands()[below]
		}
		lines[cmd] = append(lines[cmd], line)
	}
	each(root, func(cmd *cobra.Command) {
		own := lines[cmd]
		for _, sub := range cmd.Commands() {
			if len(own) < 3 && len(lines[sub]) > 0 {
				own = append(own, lines[sub][0])
			}
		}
		if cmd != root && len(own) > 0 {
			cmd.Example = "  " + strings.Join(own, "\n  ")
		}
	})
}

// helpCommand is `drover help`, which refuses words that name no command.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Show the help of a command", GroupID: "setup",
		RunE: func(_ *cobra.Command, words []string) error {
			cmd, rest, err := root.Find(words)
			switch {
			case err != nil || cmd == root && len(rest) > 0:
				return noSuchCommand(root, words)
			case len(rest) > 0:
				return console.Usage(fmt.Sprintf("%s has no command %q", cmd.CommandPath(), rest[0]),
					"see `"+cmd.CommandPath()+" --help`")
			}
			return cmd.Help()
		},
	}
}

// otherWords maps words of other programs to commands.
func otherWords() map[string]string {
	return map[string]string{
		"kill": "stop", "terminate": "stop", "cancel": "stop", "end": "stop", "abort": "stop",
		"rm": "sessions rm", "remove": "sessions rm", "delete": "sessions rm", "prune": "sessions rm --old",
		"clean": "sessions rm --old",
		"show":  "inspect", "get": "inspect", "describe": "inspect", "info": "inspect",
		"watch": "logs -f", "tail": "logs -f", "follow": "logs -f", "log": "logs", "output": "logs", "cat": "logs",
		"changes": "diff", "patch": "diff",
		"ls": "ps", "list": "ps", "tasks": "ps", "task": "ps", "jobs": "ps", "status": "ps", "history": "ps -a",
		"start": "run -d", "exec": "run", "spawn": "run -d", "bg": "promote", "fg": "attach", "detach": "run -d",
		"open": "attach",
		"tell": "send", "message": "send", "write": "send", "type": "send", "continue": "resume", "unpause": "resume",
		"freeze": "pause",
		"allow":  "approvals allow", "deny": "approvals deny", "approve": "approvals allow", "answer": "approvals answer",
		"questions": "approvals", "inbox": "attention",
		"cost": "stats", "usage": "stats", "summary": "stats",
		"check": "doctor", "setup": "doctor", "login": "doctor", "auth": "doctor",
		"todos": "todo", "export": "sessions export", "import": "teleport import", "repair": "sessions repair",
		"dream":  "memory dream",
		"prompt": `-p "…"`, "ask": `-p "…"`, "chat": "attach --new", "new": "attach --new", "flow": "workflow",
		"workflows": "workflow",
	}
}

// promptIn is the prompt in the words after `drover`: one argument with a blank in it, which no
// command has, or everything after `--`.
func promptIn(cmd *cobra.Command, words []string) string {
	text := strings.TrimSpace(strings.Join(words, " "))
	if cmd.ArgsLenAtDash() == 0 || len(words) == 1 && strings.ContainsFunc(text, unicode.IsSpace) {
		return text
	}
	return ""
}

// noSuchCommand refuses words after `drover` that are neither a command nor a prompt.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || promptIn(cmd, args) != "" {
		return nil
	}
	word, fix := args[0], "see `drover --help`; a prompt of one word is `drover -- WORD`"
	if len(args) > 1 {
		fix = "see `drover --help`; a prompt needs quotes: `drover \"fix the test\"`"
	}
	switch other := otherWords()[word]; {
	case word == "config" || word == "settings" || word == "set":
		fix = "of a live session use `drover configure`; else edit .drover/settings.json of the folder or ~/.config/drover/settings.json; `drover doctor` checks them"
	case other != "":
		fix = "use `drover " + other + "`"
	default:
		if len(word) <= 3 {
			cmd.SuggestionsMinimumDistance = 1
		}
		if s := cmd.SuggestionsFor(word); len(s) > 0 {
			fix = "did you mean `drover " + s[0] + "`?"
		}
	}
	return console.Usage(fmt.Sprintf("unknown command %q", word), fix)
}
