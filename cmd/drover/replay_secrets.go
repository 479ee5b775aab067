package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/api/teleport"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/platform/home"
)

// hidden are the secrets of a session that is recorded. It is complete before the session opens, and does not
// change then.
type hidden struct {
	secrets []teleport.Secret
	find    *teleport.Redactor
}

func (h *hidden) add(secrets ...teleport.Secret) {
	h.secrets = append(h.secrets, secrets...)
	h.find = teleport.NewRedactor(h.secrets)
}

// text replaces the secrets in a text.
func (h *hidden) text(data []byte) []byte { return h.find.Text(data) }

// of adds what the settings and the MCP servers of a session have.
func (h *hidden) of(c assemble.Config) {
	if h == nil {
		return
	}
	set, env := c.Settings, home.Lookup(c.Env)
	names := []string{set.Providers.Anthropic.APIKeyEnv, set.Providers.OpenAI.APIKeyEnv, set.Agents.Catalog.TokenEnv,
		set.Notify.WebhookKeyEnv, set.Notify.NtfyKeyEnv}
	for _, s := range set.Remote.Services {
		names = append(names, s.TokenEnv)
	}
	var found []teleport.Secret
	for _, name := range names {
		if name != "" {
			found = append(found, teleport.Secret{Name: name, Value: env(name)})
		}
	}
	for name, value := range set.Env {
		if teleport.IsSecret(name) {
			found = append(found, teleport.Secret{Name: name, Value: value})
		}
	}
	entries, _ := assemble.MCPServers(c) // errors are reported when the session opens
	for _, e := range entries {
		for name, value := range e.Server.Env {
			if teleport.IsSecret(name) {
				found = append(found, teleport.Secret{Name: name, Value: value})
			}
		}
		for name, value := range e.Server.Headers { // also without the scheme, such as Bearer
			found = append(found, teleport.Secret{Name: name, Value: value[strings.LastIndexByte(value, ' ')+1:]})
		}
	}
	h.add(slices.DeleteFunc(found, func(s teleport.Secret) bool { return s.Value == "" })...)
}

// withoutServers are definitions of agents without their MCP servers, which may hold tokens and are not started
// in a replay.
func withoutServers(agents string) string {
	var defs map[string]map[string]json.RawMessage
	if json.Unmarshal([]byte(agents), &defs) != nil {
		return agents
	}
	changed := false
	for _, def := range defs {
		for name := range def {
			if strings.EqualFold(strings.NewReplacer("_", "", "-", "").Replace(name), "mcpServers") {
				delete(def, name)
				changed = true
			}
		}
	}
	if !changed {
		return agents
	}
	data, err := json.Marshal(defs)
	if err != nil {
		return agents
	}
	return string(data)
}
