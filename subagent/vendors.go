package subagent

import (
	"path/filepath"
	"slices"
)

// Vendor is an agent of another vendor that is known without a file.
type Vendor struct {
	Definition
	Install string // the command that installs its program

	// Own starts the vendor's own program by the vendor's own protocol, where the program of the
	// Definition, a bridge, is not installed. nil: the program of the Definition is the vendor's own.
	Own *ACP
}

// On returns the definition for the programs of a machine. ok is false if it has none that this agent needs.
func (v Vendor) On(installed func(program string) bool) (d Definition, ok bool) {
	d = v.Definition
	if v.Own != nil && !installed(d.ACP.Command) {
		d.ACP = v.Own
	}
	return d, installed(d.ACP.Command)
}

// Vendors returns the agents of the public registry of the Agent Client Protocol that need no
// file, sorted by name. Whether their programs are there is not looked at.
func Vendors() []Vendor {
	one := func(name, title, install string, a ACP) Vendor {
		return Vendor{Install: install, Definition: Definition{
			Name: name, DisplayName: title, ACP: &a,
			Description: title + ", an agent of another vendor with its own model and tools. It costs what its own account costs.",
		}}
	}
	anthropic := []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}
	openai := []string{"OPENAI_API_KEY", "CODEX_API_KEY"}
	google := []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}
	several := slices.Concat(anthropic, openai, google, []string{"OPENROUTER_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY",
		"DEEPSEEK_API_KEY", "XAI_API_KEY"})
	// bridged is an agent whose program speaks ACP by a bridge alone.
	bridged := func(program string, v Vendor) Vendor {
		own := *v.ACP
		own.Command, own.Protocol = program, v.Name
		v.Own = &own
		return v
	}
	return []Vendor{
		bridged("claude", one("claude", "Claude Code", "npm install -g @anthropic-ai/claude-code", ACP{
			Command: "claude-agent-acp", Mode: "default", Login: "claude /login", Keys: anthropic,
			Folders: []string{".claude", ".claude.json"},
			Hosts:   []string{"api.anthropic.com", "console.anthropic.com", "platform.claude.com", "claude.ai"}})),
		bridged("codex", one("codex", "Codex", "npm install -g @openai/codex", ACP{
			Command: "codex-acp", Mode: "read-only", Login: "codex login", Keys: openai, Folders: []string{".codex"},
			Hosts: []string{"api.openai.com", "auth.openai.com", "chatgpt.com"}})),
		one("copilot", "GitHub Copilot", "npm install -g @github/copilot", ACP{
			Command: "copilot", Args: []string{"--acp"}, Login: "copilot login", Keys: []string{"GH_TOKEN", "GITHUB_TOKEN"},
			Folders: []string{".copilot", ".config/github-copilot"},
			Hosts:   []string{"api.github.com", "github.com", "*.githubcopilot.com"}}),
		one("cursor", "Cursor", "see https://cursor.com/cli", ACP{
			Command: "cursor-agent", Args: []string{"acp"}, Login: "cursor-agent login", Keys: []string{"CURSOR_API_KEY"},
			Folders: []string{".cursor"}, Hosts: []string{"*.cursor.sh", "*.cursor.com"}}),
		one("gemini", "Gemini CLI", "npm install -g @google/gemini-cli", ACP{
			Command: "gemini", Args: []string{"--acp"}, Login: "gemini", Keys: google, Folders: []string{".gemini"},
			Hosts: []string{"generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"}}),
		one("goose", "Goose", "see https://block.github.io/goose", ACP{
			Command: "goose", Args: []string{"acp"}, Login: "goose configure", Keys: several,
			Folders: []string{".config/goose", ".local/share/goose"},
			Hosts:   []string{"api.anthropic.com", "api.openai.com", "openrouter.ai"}}),
		one("kimi", "Kimi CLI", "uv tool install kimi-cli", ACP{
			Command: "kimi", Args: []string{"acp"}, Login: "kimi login", Keys: []string{"KIMI_API_KEY", "MOONSHOT_API_KEY"},
			Folders: []string{".kimi"}, Hosts: []string{"api.moonshot.ai", "api.kimi.com"}}),
		one("opencode", "OpenCode", "npm install -g opencode-ai", ACP{
			Command: "opencode", Args: []string{"acp"}, Login: "opencode auth login", Keys: several,
			Folders: []string{".local/share/opencode", ".config/opencode", ".local/state/opencode"},
			Hosts:   []string{"opencode.ai", "models.dev", "api.anthropic.com", "api.openai.com"}}),
		one("qwen", "Qwen Code", "npm install -g @qwen-code/qwen-code", ACP{
			Command: "qwen", Args: []string{"--acp"}, Login: "qwen", Keys: append(slices.Clone(openai), "DASHSCOPE_API_KEY"),
			Folders: []string{".qwen"}, Hosts: []string{"dashscope.aliyuncs.com", "chat.qwen.ai"}}),
	}
}

// Known returns the command with what is known of its program, where the definition says nothing.
func (a ACP) Known() ACP {
	for _, v := range Vendors() {
		if base := filepath.Base(a.Command); v.ACP.Command != base && (v.Own == nil || v.Own.Command != base) {
			continue
		}
		if a.Mode == "" { // in others the program decides by itself, and no rule of ours is asked
			a.Mode = v.ACP.Mode
		}
		if a.Login == "" {
			a.Login = v.ACP.Login
		}
		if a.Keys == nil {
			a.Keys = v.ACP.Keys
		}
		if a.Folders == nil {
			a.Folders = v.ACP.Folders
		}
		if a.Hosts == nil {
			a.Hosts = v.ACP.Hosts
		}
	}
	return a
}
