package permission

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

// explain completes the verdict of a call with the rule that would allow it.
func (g *Gate) explain(r request, v Verdict) Verdict {
	if v.Suggest = g.suggest(r, v); v.Suggest != "" {
		v.Reason += " (allow with " + v.Suggest + ")"
	}
	return v
}

// literalRule is the rule for exactly this shell line, or nothing.
func literalRule(r request) string {
	if kindOf(r.tool) != shellTool || r.bad != "" {
		return ""
	}
	return "Bash(" + strings.TrimSpace(r.text) + ")"
}

// commandRule is the rule for a command and what may follow it: its program, and
// the command of the program where it has several.
func commandRule(ws []word) string {
	n := 1
	for n < len(ws) && n <= subcommands(ws[0].text, ws[1:]) {
		if w := ws[n]; !named(w) || strings.HasPrefix(w.text, "-") || strings.ContainsAny(w.text, " \t\n*?`$;|&<>()'\"\\=/") {
			break
		}
		n++
	}
	var b strings.Builder
	for i, w := range ws[:n] {
		if strings.ContainsAny(w.text, " \t\n*?`$;|&<>()'\"\\") {
			return ""
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.text)
	}
	return "Bash(" + b.String() + ":*)"
}

// subcommands is how many words behind the name of a program say what it does.
func subcommands(name string, args []word) int {
	switch filepath.Base(name) {
	case "npm", "pnpm", "yarn", "bun", "deno", "composer", "poetry", "uv", "pdm", "hatch", "pipenv", "mise", "asdf":
		if len(args) > 0 && (args[0].text == "run" || args[0].text == "exec") {
			return 2
		}
		return 1
	case "docker", "podman":
		if len(args) > 0 &&
			slices.Contains([]string{"compose", "image", "container", "volume", "network", "system", "buildx"}, args[0].text) {
			return 2
		}
		return 1
	case "gh", "glab", "aws", "gcloud", "az", "kubeadm", "argocd", "flux":
		return 2
	case "git", "go", "cargo", "rustup", "pip", "pip3", "pipx", "conda", "kubectl", "helm", "terraform",
		"tofu", "dotnet", "swift", "mix", "bundle", "gem", "rails", "rake", "flutter", "dart", "brew",
		"apt", "apt-get", "dnf", "systemctl", "journalctl", "nix", "bazel", "buck2", "stack", "cabal",
		"opam", "dune", "zig", "just", "task", "turbo", "nx", "ng", "firebase", "vercel", "heroku",
		"fly", "snap", "vagrant", "ansible", "pre-commit", "jj", "hg", "svn", "pulumi", "minikube",
		"kind", "skaffold", "buf", "svelte-kit":
		return 1
	}
	return 0
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
	return kind + "(" + real + ")"
}

// hostRule is the rule for the host of a URL.
func hostRule(tool, raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	return tool + "(domain:" + strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) + ")"
}

// toolRule is the rule for other tools, as narrow as their rules can be.
func toolRule(kind toolKind, r request) string {
	switch kind {
	case webTool:
		if r.tool == "WebFetch" {
			return hostRule(r.tool, r.text)
		}
	case agentTool, skillTool:
		if r.text != "" {
			return r.tool + "(" + r.text + ")"
		}
	}
	return r.tool
}
