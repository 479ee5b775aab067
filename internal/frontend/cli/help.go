package cli

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// group is what people do with some of the commands.
type group struct {
	id, title string
	commands  []string
}

// groups are the commands as help lists them.
func groups() []group {
	return []group{
		{"run", "Run:", []string{"run", "agent", "workflow", "compete", "merge", "monitor", "schedule", "remote",
			"record", "replay", "demo"}},
		{"watch", "Watch:", []string{"ps", "logs", "result", "diff", "inspect", "wait", "attach", "top", "serve"}},
		{"steer", "Steer:", []string{"stop", "send", "pause", "resume", "promote", "approvals", "attention", "configure",
			"forward"}},
		{"agents", "Agents:", []string{"agents", "commands", "skills", "models", "permissions", "mcp", "acp"}},
		{"machines", "Machines:", []string{"hub", "worker", "workers", "drain"}},
		{"project", "Project:", []string{"sessions", "fork", "todo", "memory", "stats", "teleport", "trust"}},
		{"setup", "Setup:", []string{"init", "doctor", "service", "completion", "help", "version"}},
	}
}

// examples are those of each command, by its words behind `drover`.
func examples() map[string][]string {
	return map[string][]string{
		"run": {"drover run -- make test", "drover run -d --name server --keep -- ./server --port 8080",
			"drover run -d --tty -- python3", "drover run --on gpu --env MODEL -- python3 train.py",
			"drover run 'go vet ./... && go test ./...'", "seq 100 | sed 's/^/sleep /' | drover run -d --batch -"},
		"agent":     {`drover agent run explore "where is the parser?"`},
		"agent run": {`drover agent run explore "where is the parser?"`, `git diff | drover agent run general-purpose -`},
		"workflow":  {"drover workflow check release.yaml", "drover workflow run release.yaml -p version=1.4.0"},
		"workflow run": {"drover workflow run release.yaml -p version=1.4.0", "drover workflow run -d nightly.yaml",
			"drover workflow run --resume w1b2c3d4e"},
		"compete": {`drover compete --agents general-purpose@opus,general-purpose@haiku --check 'go test ./...' "fix the flaky test"`,
			`drover compete --agents general-purpose@opus,general-purpose@haiku --judge code-review --check 'make test' --merge "fix it"`},
		"workflow check": {"drover workflow check release.yaml"},
		"workflow graph": {"drover workflow graph release.yaml",
			"drover workflow graph --dot release.yaml | dot -Tsvg > release.svg"},
		"monitor": {"drover monitor --match ERROR --file /var/log/app.log",
			"drover monitor --persistent -- ./poll-ci.sh"},
		"schedule": {`drover schedule add "0 6 * * 1-5" -- make test`, "drover schedule list"},
		"schedule add": {`drover schedule add "0 6 * * 1-5" --name nightly -- make test`,
			`drover schedule add @daily --zone Europe/Berlin --prompt "review the changes of yesterday" --allowed-tools "Bash(git log:*)"`},
		"schedule list":     {"drover schedule list --json"},
		"schedule rm":       {"drover schedule rm nightly"},
		"schedule pause":    {"drover schedule pause nightly"},
		"schedule resume":   {"drover schedule resume nightly"},
		"schedule run":      {"drover schedule run nightly"},
		"init":              {"drover init"},
		"service":           {"drover service install", "drover service status"},
		"service install":   {"drover service install"},
		"service uninstall": {"drover service uninstall"},
		"service status":    {"drover service status --json"},
		"service run":       {"drover service run"},
		"remote":            {`drover remote run --service ci "fix the build"`},
		"remote run": {`drover remote run --service ci "fix the build"`,
			`drover remote run -d --type background-pr "update the dependencies"`},
		"remote serve": {"DROVER_REMOTE_TOKEN=$(openssl rand -hex 32) drover remote serve --listen 127.0.0.1:7070"},
		"demo":         {"drover demo"},

		"ps": {"drover ps", "drover ps -a --tree", "drover ps --watch", "drover ps --json | jq '.[].task_id'"},
		"logs": {"drover logs b1a2b3c4d", "drover logs -f server", "drover logs -n 20 server", "drover logs -f server worker",
			"drover logs -f --all"},
		"result": {"drover result a1b2c3d4e"},
		"diff": {"drover diff a1b2c3d4e", "drover diff --stat a1b2c3d4e",
			"drover diff a1b2c3d4e internal/parser | git apply",
			`drover diff a1b2c3d4e --comment main.go:12 "why not a constant?" --comment go.mod "sort this"`},
		"merge": {"drover merge a1b2c3d4e", "drover merge --check 'make test' a1b2c3d4e a5f6g7h8i",
			"drover merge --pr --into main a1b2c3d4e"},
		"inspect": {"drover inspect b1a2b3c4d | jq .status"},
		"wait":    {"drover wait b1a2b3c4d", "drover wait --any --timeout 10m unit lint"},
		"attach":  {"drover attach", "drover attach --new --model opus", "drover attach b1a2b3c4d"},
		"top":     {"drover top", "drover top --all-sessions s1b2c3d4e"},

		"stop": {"drover stop server", "drover stop --grace 10s b1a2b3c4d", "drover stop --all"},
		"send": {`drover send a1b2c3d4e "leave the tests alone"`, "drover send --key ctrl-c python",
			"drover send python - < script.py"},
		"pause":   {"drover pause a1b2c3d4e"},
		"resume":  {"drover resume a1b2c3d4e", `drover resume a1b2c3d4e "and now the tests"`},
		"promote": {"drover promote b1a2b3c4d"},
		"record":  {`drover record --model sonnet run.jsonl "find the flaky test and fix it"`},
		"replay": {"drover replay run.jsonl", "drover replay --check run.jsonl", "drover replay --list run.jsonl",
			"drover replay --until 3 --model opus run.jsonl"},
		"fork": {"drover fork --list s1b2c3d4e", "drover fork --at 3 s1b2c3d4e"},

		"forward": {"drover forward 3000", "drover forward 3000:8080 --session s1b2c3d4e", "drover forward --end 3000"},
		"configure": {"drover configure", "drover configure --model opus --effort high s1b2c3d4e",
			"drover configure --permission-mode plan"},

		"approvals":       {"drover approvals", "drover approvals --watch", "drover approvals allow q1b2c3d4e"},
		"approvals allow": {"drover approvals allow q1b2c3d4e", "drover approvals allow --always q1b2c3d4e"},
		"approvals deny":  {`drover approvals deny --reason "use the staging server" q1b2c3d4e`},
		"approvals answer": {`drover approvals answer q1b2c3d4e "the second one"`,
			`drover approvals answer q1b2c3d4e '{"port":8080}'`},
		"approvals show": {"drover approvals show q1b2c3d4e"},

		"attention": {"drover attention", "drover attention --watch --notify osc9",
			"drover attention --json | jq -r '.items[].why'"},
		"attention test": {"drover attention test"},
		"attention seen": {"drover attention seen b1a2b3c4d", "drover attention seen --all"},

		"agents":       {"drover agents", "drover agents show explore"},
		"agents list":  {"drover agents list --json"},
		"agents show":  {"drover agents show explore"},
		"agents check": {"drover agents check", "drover agents check .claude/agents/reviewer.md"},
		"commands":     {"drover commands", "drover commands --json | jq -r '.commands[].name'"},
		"skills":       {"drover skills", "drover skills --json"},
		"models":       {"drover models"},
		"permissions":  {"drover permissions check Bash 'git log -1'"},
		"permissions check": {"drover permissions check Bash 'git log -1'",
			"drover permissions check --allow 'Bash(go test:*)' Bash 'go test -exec x ./...'",
			"drover permissions check --deny 'Read(./.env)' Read .env"},
		"mcp":        {"drover mcp list", "claude mcp add drover -- drover mcp serve"},
		"serve":      {"drover serve", "drover serve --url https://drover.example --read-only", "drover serve --a2a"},
		"hub":        {"drover hub", "drover hub --listen 0.0.0.0:7484 --address build.example:7484"},
		"hub join":   {"drover hub join", "drover hub join --project web --address build.example:7484"},
		"hub status": {"drover hub status", "drover hub status --json"},
		"worker":     {"drover worker", "drover worker --hub ~/join --label gpu --capacity 4"},
		"workers":    {"drover workers", "drover workers --json"},
		"drain":      {"drover drain build-1"},
		"acp":        {"drover acp", "drover acp --model opus --permission-mode plan"},
		"mcp serve":  {"drover mcp serve", "drover mcp serve --http 127.0.0.1:8931"},
		"mcp add": {"drover mcp add files -- npx -y @modelcontextprotocol/server-filesystem .",
			"drover mcp add --url https://mcp.example.com/mcp --header 'Authorization: Bearer ${TOKEN}' tickets"},
		"mcp list":   {"drover mcp list", "drover mcp list --no-connect"},
		"mcp rm":     {"drover mcp rm files"},
		"mcp accept": {"drover mcp accept files"},
		"mcp login":  {"drover mcp login tickets", "drover mcp login --port 8765 tickets"},
		"mcp logout": {"drover mcp logout tickets"},

		"sessions":    {"drover sessions", "drover sessions --all-sessions"},
		"sessions rm": {"drover sessions rm s1b2c3d4e", "drover sessions rm --old=30d"},
		"sessions export": {"drover sessions export s1b2c3d4e -o talk.md",
			"drover sessions export --format json s1b2c3d4e"},
		"sessions repair": {"drover sessions repair s1b2c3d4e"},
		"todo":            {"drover todo", `drover todo add "write the release notes"`, "drover todo done 3"},
		"todo list":       {"drover todo list --json"},
		"todo add":        {`drover todo add "write the release notes"`, `drover todo add --blocked-by 1,2 "publish"`},
		"todo set": {"drover todo set 3 status=in_progress",
			"drover todo set 4 owner=ann blocked_by=2,3 metadata.ticket=17"},
		"todo done":          {"drover todo done 3", "drover todo done 3 4 5"},
		"todo rm":            {"drover todo rm 3"},
		"todo graph":         {"drover todo graph"},
		"memory":             {"drover memory", "drover memory dream"},
		"memory show":        {"drover memory show"},
		"memory list":        {"drover memory list"},
		"memory path":        {"cd \"$(drover memory path)\""},
		"memory board":       {"drover memory board"},
		"memory board list":  {"drover memory board list --json"},
		"memory board add":   {`drover memory board add --tag ci "the nightly job needs go 1.26"`},
		"memory board prune": {"drover memory board prune m1b2c3"},
		"memory dream":       {"drover memory dream", "drover memory dream -d"},
		"stats":              {"drover stats", "drover stats --by day --since 7d"},
		"teleport": {"drover teleport export s1b2c3d4e -o talk.tar.gz",
			"drover teleport import talk.tar.gz --into ~/project"},
		"teleport export": {"drover teleport export s1b2c3d4e -o talk.tar.gz"},
		"teleport import": {"drover teleport import talk.tar.gz --into ~/project"},
		"trust":           {"drover trust", "drover trust --revoke"},

		"doctor":         {"drover doctor", "drover doctor --json"},
		"doctor sandbox": {"drover doctor sandbox", "drover doctor sandbox --seatbelt"},
		"doctor stall":   {"printf 'Overwrite? [y/N] ' | drover doctor stall"},
		"version":        {"drover version --json"},
		"completion":     {"source <(drover completion bash)", "drover completion zsh > \"${fpath[1]}/_drover\""},
	}
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
				return usage(fmt.Sprintf("%s has no command %q", cmd.CommandPath(), rest[0]), "see `"+cmd.CommandPath()+" --help`")
			}
			return cmd.Help()
		},
	}
}

// arrange groups the commands below root and gives each its examples.
func arrange(root *cobra.Command) {
	groupOf := map[string]string{}
	for _, g := range groups() {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, command := range g.commands {
			groupOf[command] = g.id
		}
	}
	root.SetHelpCommand(helpCommand(root))
	root.SetCompletionCommandGroupID("setup")
	texts := examples()
	var each func(cmd *cobra.Command, path string)
	each = func(cmd *cobra.Command, path string) {
		if lines := texts[path]; len(lines) > 0 {
			cmd.Example = "  " + strings.Join(lines, "\n  ")
		}
		for _, sub := range cmd.Commands() {
			if cmd == root {
				sub.GroupID = groupOf[sub.Name()]
			}
			each(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
	}
	each(root, "")
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
	return usage(fmt.Sprintf("unknown command %q", word), fix)
}
