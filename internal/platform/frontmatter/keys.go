package frontmatter

// AgentKeys returns the keys of definitions of agents, of all dialects. Every reader
// of a definition passes these, so that all see the same fields of a file: the
// trusted fields must be the used ones.
func AgentKeys() []string {
	return []string{"name", "description", "tools", "disallowedTools", "model", "mcpServers", "skills",
		"initialPrompt", "maxTurns", "autoCompactWindow", "background", "omitClaudeMd", "memory", "effort",
		"permissionMode", "observer", "observerMessage", "hooks", "isolation", "color", "target",
		"disable-model-invocation", "user-invocable", "user-invokable", "infer", "mcp-servers", "metadata",
		"argument-hint", "agents", "handoffs", "mode", "hidden", "onEnd", "budget", "sandbox", "acp", "on",
		"criticalSystemReminder_EXPERIMENTAL", "github"}
}

// SkillKeys are the same for SKILL.md.
func SkillKeys() []string {
	return []string{"name", "description", "license", "compatibility", "metadata", "allowed-tools", "version",
		"argument-hint", "user-invocable", "user-invokable", "disable-model-invocation", "context", "agent", "model"}
}

// CommandKeys are the same for commands and prompt files.
func CommandKeys() []string {
	return []string{"name", "description", "argument-hint", "allowed-tools", "model", "agent", "mode", "tools",
		"context", "disable-model-invocation", "hide-from-slash-command-tool", "user-invocable", "user-invokable",
		"version", "category", "tags", "title", "author", "license", "metadata"}
}
