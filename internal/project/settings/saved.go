package settings

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/options"
)

// Saved is how models are reached, as the set-up page of the terminal UI keeps it in a file of its
// own. It counts where variables and settings say nothing of its provider: a key must not go to an
// address that was set for another one.
type Saved struct {
	Provider  string `json:"provider"` // anthropic or openai
	BaseURL   string `json:"base_url,omitempty"`
	APIKey    string `json:"api_key,omitempty"`
	AuthToken string `json:"auth_token,omitempty"`
	Model     string `json:"model,omitempty"`
}

// Variables are those that say the same, or none.
func (s Saved) Variables(env func(string) string, p options.Providers) []string {
	of := map[string]options.Provider{"anthropic": p.Anthropic, "openai": p.OpenAI}[s.Provider]
	if s.Provider == "" || of.BaseURL != "" || of.APIKeyEnv != "" {
		return nil
	}
	var list []string
	for name, value := range map[string]string{"_BASE_URL": s.BaseURL, "_API_KEY": s.APIKey, "_AUTH_TOKEN": s.AuthToken} {
		name = strings.ToUpper(s.Provider) + name
		if env(name) != "" {
			return nil
		}
		if value != "" {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// saved reads the choice of the set-up page. Its model counts where no other is named.
func (l *loader) saved(path string, env func(string) string) {
	data, ok := l.data(path)
	if !ok {
		return
	}
	s := &l.set.Saved
	if err := json.Unmarshal(data, s); err != nil {
		l.errs = append(l.errs, fmt.Errorf("settings file %s cannot be read: %w (remove it; `drover` sets it up again)", path, err))
		return
	}
	if l.set.Model == "" && env != nil && s.Variables(env, l.set.Providers) != nil {
		l.set.Model = s.Model
	}
}
