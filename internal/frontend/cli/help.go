package cli

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

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

// otherWords are what people know from other programs, and what it is called here.
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
