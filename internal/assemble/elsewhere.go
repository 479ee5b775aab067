package assemble

import (
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/services"
)

// elsewhere is what the settings say of remote work.
func elsewhere(c Config, tell func(string, ...any)) services.Config {
	set := c.Settings.Remote
	r := services.Config{
		Services: map[string]services.Service{},
		Usual:    set.Usual(),
		Checkers: map[remoteapi.Type]string{},
		Offline:  set.Offline,
		Token:    home.Lookup(c.Env),
	}
	for name, one := range set.Services {
		if _, err := remoteapi.CheckURL(one.URL); err != nil {
			tell("remote service %s: %v", name, err)
			continue
		}
		r.Services[name] = services.Service{URL: one.URL, TokenEnv: one.TokenEnv, A2A: one.Protocol == "a2a"}
	}
	if _, ok := r.Services[r.Usual]; !ok {
		r.Usual = ""
	}
	for name, line := range set.Checkers {
		t, err := remoteapi.ParseType(name)
		if err != nil || name == "" {
			tell("remote.checkers: there is no type of remote work %q", name)
			continue
		}
		r.Checkers[t] = line
	}
	return r
}

// withoutTokens takes the tokens of remote services out of an environment: no
// command is given them.
func withoutTokens(env []string, set options.Remote) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		for _, one := range set.Services {
			if name != "" && name == one.TokenEnv {
				return true
			}
		}
		return false
	})
}
