// Package steer has the commands that change tasks which run: stop, pause, messages, answers to
// questions, and the settings of a live session.
package steer

import "github.com/drover-dev/drover/internal/frontend/cli/console"

// app is what these commands share.
type app struct{ console.Console }

// Commands returns the commands of this package.
func Commands(c console.Console) []console.Command {
	a := &app{c}
	return []console.Command{
		{Name: "stop", Short: "Stop tasks and everything below them, and print a receipt", Make: a.stop,
			Examples: console.Examples{
				"": {"drover stop server", "drover stop --grace 10s b1a2b3c4d", "drover stop --all"},
			}},
		{Name: "send", Short: "Send a message to an agent, or type into a command with a terminal", Make: a.send,
			Examples: console.Examples{
				"": {`drover send a1b2c3d4e "leave the tests alone"`, "drover send --key ctrl-c python",
					"drover send python - < script.py"},
			}},
		{Name: "pause", Short: "Pause tasks and everything below them", Make: a.pause, Examples: console.Examples{
			"": {"drover pause a1b2c3d4e"},
		}},
		{Name: "resume", Short: "Resume a paused task, or start a new run of an ended agent", Make: a.resume,
			Examples: console.Examples{
				"": {"drover resume a1b2c3d4e", `drover resume a1b2c3d4e "and now the tests"`},
			}},
		{Name: "promote", Short: "Move a foreground task to the background", Make: a.promote, Examples: console.Examples{
			"": {"drover promote b1a2b3c4d"},
		}},
		{Name: "approvals", Short: "List, show and answer the questions of agents", Make: a.approvals,
			Examples: console.Examples{
				"":      {"drover approvals", "drover approvals --watch", "drover approvals allow q1b2c3d4e"},
				"allow": {"drover approvals allow q1b2c3d4e", "drover approvals allow --always q1b2c3d4e"},
				"deny":  {`drover approvals deny --reason "use the staging server" q1b2c3d4e`},
				"answer": {`drover approvals answer q1b2c3d4e "the second one"`,
					`drover approvals answer q1b2c3d4e '{"port":8080}'`},
				"show": {"drover approvals show q1b2c3d4e"},
			}},
		{Name: "configure", Short: "Show or change the model, modes and thinking of a live session", Make: a.configure,
			Examples: console.Examples{
				"": {"drover configure", "drover configure --model opus --effort high s1b2c3d4e",
					"drover configure --permission-mode plan"},
			}},
		{Name: "forward", Short: "Let this machine reach a port of sandboxed commands", Make: a.forward,
			Examples: console.Examples{
				"": {"drover forward 3000", "drover forward 3000:8080 --session s1b2c3d4e", "drover forward --end 3000"},
			}},
	}
}
