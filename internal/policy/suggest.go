package policy

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// maxSuggested bounds a rule that is suggested: a longer one would be read by
// nobody.
const maxSuggested = 500

// suggest returns the narrowest useful rule that would allow a call that is asked
// about, or nothing if no rule can. It tries a rule on the call before it names it.
func (g *Gate) suggest(r request, v Verdict) string {
	if v.Decision != Ask || v.Rule != "" || g.rules.Mode == Plan {
		return ""
	}
	for _, text := range []string{v.candidate, literalRule(r)} {
		if text == "" || len(text) > maxSuggested || strings.ContainsFunc(text, hidden) {
			continue
		}
		rl, err := g.parseRule(text, true)
		if err != nil || rl.all && strings.Contains(text, "(") {
			continue
		}
		wider := *g
		wider.allow = append(slices.Clip(g.allow), rl)
		if wider.rule(r).Decision == Allow {
			return text
		}
	}
	return ""
}

// explain completes the verdict of a call with what would allow it: a rule, or what else does.
func (g *Gate) explain(r request, v Verdict) Verdict {
	if v.Suggest = g.suggest(r, v); v.Suggest != "" {
		v.Reason += " (allow with " + v.Suggest + ")"
	} else if v.Decision != Allow && !v.told {
		v.Reason += " (" + g.remedy(r, v) + ")"
	}
	return v
}

// remedy says what would allow a call that no rule of its own can. What it names was tried on the call.
func (g *Gate) remedy(r request, v Verdict) string {
	var ways []string
	if v.Decision == Ask {
		ways = append(ways, "an answer")
	}
	if v.Rule != "" {
		ways = append(ways, "removing that rule")
	} else {
		wider := *g
		if kindOf(r.tool) == shellTool {
			wider.allow = append(slices.Clip(g.allow), rule{text: "Bash", tool: "Bash", all: true})
			if wider.rule(r).Decision == Allow {
				ways = append(ways, "the rule Bash for every command")
			}
		}
		wider.rules.Mode = Bypass
		if wider.rule(r).Decision == Allow {
			ways = append(ways, "the mode bypassPermissions")
		}
	}
	if len(ways) == 0 {
		return "no rule and no mode allows it: correct the call"
	}
	last := len(ways) - 1
	if last > 0 {
		ways[last] = strings.Join(ways[:last], ", ") + " or " + ways[last]
	}
	return "only " + ways[last] + " allows it"
}

// literalRule is the rule for exactly this shell line, or nothing.
func literalRule(r request) string {
	if kindOf(r.tool) != shellTool || r.bad != "" {
		return ""
	}
	return "Bash(" + strings.TrimSpace(r.text) + ")"
}

// commandRule is the narrowest rule that covers a command and the like of it: its program with
// the command of the program, its script or its module. Nothing where such a rule would cover
// much else: there the rule for exactly this line is meant.
func commandRule(ws []word) string {
	n := distinct(ws[0].text, ws[1:])
	if n < 0 || n >= len(ws) {
		return ""
	}
	var b strings.Builder
	for i, w := range ws[:n+1] {
		if !w.plain() || w.text == "" || strings.ContainsAny(w.text, " \t\n*?`$;|&<>()'\"\\") {
			return ""
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.text)
	}
	return "Bash(" + b.String() + ":*)"
}

// distinct is how many words behind the name of a program say what it does; below 0: only all
// of them do.
func distinct(program string, args []word) int {
	at := func(i int) string {
		if i < len(args) {
			return args[i].text
		}
		return ""
	}
	name := filepath.Base(program)
	n := 1
	switch {
	case strings.HasPrefix(name, "python") && at(0) == "-m":
		return 2
	case (interpreter(name) || slices.Contains([]string{"bash", "sh", "zsh", "dash"}, name)) &&
		!(runner(name) && subcommand(at(0))):
		if at(0) == "" || at(0)[0] == '-' {
			return -1 // what it runs stands in the line, or nowhere
		}
		return 1
	case slices.Contains([]string{"gh", "glab", "aws", "gcloud", "az", "kubeadm", "argocd", "flux"}, name):
		n = 2
	case runner(name):
	case tester(name), strings.Contains(program, "/") && !filepath.IsAbs(program):
		return 0
	default:
		return -1
	}
	switch at(0) {
	case "run", "exec", "compose", "image", "container", "volume", "network", "system", "buildx":
		n = 2
	}
	packages := at(0) == "exec" && slices.Contains([]string{"npm", "pnpm", "yarn", "bundle", "poetry"}, name)
	for i := range n {
		if w := at(i); !subcommand(w) || changesMuch(w) && !packages {
			return -1
		}
	}
	return n
}

// subcommand reports a word that can be the command of a program, or what it is to make.
func subcommand(w string) bool {
	return w != "" && w[0] != '-' && !strings.ContainsAny(w, "./=@~")
}

// changesMuch reports commands of programs whose operands matter as much as they do.
func changesMuch(w string) bool {
	switch w {
	case "push", "publish", "delete", "destroy", "apply", "rm", "remove", "exec", "reset", "clean", "merge", "prune",
		"uninstall", "drop", "kill", "api", "ssh", "scp", "login", "config":
		return true
	}
	return false
}

// runner reports programs with commands of their own.
func runner(name string) bool {
	switch name {
	case "npm", "pnpm", "yarn", "bun", "deno", "composer", "poetry", "uv", "pdm", "hatch", "pipenv", "mise", "asdf",
		"npx", "bunx", "uvx", "docker", "podman", "git", "go", "cargo", "rustup", "pip", "pip3", "pipx", "conda", "kubectl",
		"helm", "terraform", "tofu", "dotnet", "swift", "mix", "bundle", "gem", "rails", "rake", "flutter", "dart", "brew",
		"apt", "apt-get", "dnf", "systemctl", "journalctl", "nix", "bazel", "buck2", "stack", "cabal", "opam", "dune",
		"zig", "just", "task", "turbo", "nx", "ng", "firebase", "vercel", "heroku", "fly", "snap", "vagrant", "pre-commit",
		"jj", "hg", "svn", "pulumi", "minikube", "kind", "skaffold", "buf", "mvn", "mvnw", "gradle", "gradlew", "make",
		"gmake", "ninja":
		return true
	}
	return false
}

// tester reports programs that build, test and check what is in a project, whatever their
// words are.
func tester(name string) bool {
	switch name {
	case "pytest", "tox", "mypy", "ruff", "black", "flake8", "pylint", "isort", "eslint", "prettier", "tsc", "jest",
		"vitest", "mocha", "gofmt", "goimports", "golangci-lint", "staticcheck", "rustfmt", "clang-format", "shellcheck",
		"rspec", "rubocop", "phpunit", "ctest":
		return true
	}
	return false
}

// pathRule is the rule for exactly this file, for tools that read or that edit.
func (g *Gate) pathRule(tool, real string) string {
	if real == "" || strings.ContainsAny(real, `*?[{}\`) {
		return ""
	}
	kind := "Read"
	if kindOf(tool) == editTool {
		kind = "Edit"
	}
	if len(g.roots) > 0 {
		if rest, ok := strings.CutPrefix(real, g.roots[0]+"/"); ok {
			return kind + "(./" + rest + ")"
		}
	}
	if kindOf(tool) == listTool {
		real = strings.TrimSuffix(real, "/") + "/**"
	}
	return kind + "(" + real + ")"
}

// toolRule is the rule for other tools, as narrow as their rules can be.
func toolRule(kind toolKind, r request) string {
	switch kind {
	case webTool:
		if u, err := url.Parse(r.text); r.tool == "WebFetch" {
			if err != nil || u.Hostname() == "" {
				return ""
			}
			return r.tool + "(domain:" + strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) + ")"
		}
	case agentTool, skillTool:
		if r.text != "" {
			return r.tool + "(" + r.text + ")"
		}
	}
	return r.tool
}
