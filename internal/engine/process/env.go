package process

import (
	"slices"
	"strings"
)

// providerKeys are the credentials of model providers. Commands do not inherit them: a
// model could print one.
//
//rules:constant never changed after this line
var providerKeys = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN",
	"OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY",
	"MISTRAL_API_KEY", "GROQ_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY",
	"XAI_API_KEY", "COHERE_API_KEY", "CO_API_KEY", "TOGETHER_API_KEY",
	"FIREWORKS_API_KEY", "PERPLEXITY_API_KEY", "CEREBRAS_API_KEY", "AWS_BEARER_TOKEN_BEDROCK",
}

// The variables of ours that a command gets: the depth of hooks, so that a chain through a
// command keeps its count, and the state folder, so that a drover in a command finds the
// same one.
const (
	hookDepth = "DROVER_HOOK_DEPTH"
	stateHome = "DROVER_HOME"
)

// ChildEnv returns the environment of a command: the client's without the keys
// of model providers and without variables that begin with DROVER_, except these two.
// It does not change env.
func ChildEnv(env []string) []string {
	out := make([]string, 0, len(env))
	for _, kv := range env {
		key, _, ok := strings.Cut(kv, "=")
		if !ok || strings.HasPrefix(key, "DROVER_") && key != hookDepth && key != stateHome ||
			slices.Contains(providerKeys, key) {
			continue
		}
		out = append(out, kv)
	}
	return out
}
