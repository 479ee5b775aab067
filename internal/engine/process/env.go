package process

import (
	"slices"
	"strings"
)

// providerKeys are the credentials of model providers. A command that needs one
// must be given it by its own means: a model could otherwise print it.
//
//rules:constant never changed after this line
var providerKeys = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN",
	"OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY",
	"MISTRAL_API_KEY", "GROQ_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY",
	"XAI_API_KEY", "COHERE_API_KEY", "CO_API_KEY", "TOGETHER_API_KEY",
	"FIREWORKS_API_KEY", "PERPLEXITY_API_KEY", "CEREBRAS_API_KEY", "AWS_BEARER_TOKEN_BEDROCK",
}

// What begins with DROVER_ and is passed on: the depth of hooks, or a chain through a
// command would begin to count again, and where the state is, or a drover in a command
// would look elsewhere.
const (
	hookDepth = "DROVER_HOOK_DEPTH"
	stateHome = "DROVER_HOME"
)

// ChildEnv is what a command gets of a client's environment: all but the keys
// of model providers and what begins with DROVER_, apart from those two. It leaves
// env as it is.
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
