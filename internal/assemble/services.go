package assemble

import (
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/options"
)

// checkServices warns of settings of remote work that cannot be used.
func checkServices(set options.Remote, tell func(string, ...any)) {
	for name, one := range set.Services {
		if err := a2a.CheckCard(one.URL, one.AnyPath()); err != nil {
			tell("remote service %s: %v", name, err)
		}
	}
	for name := range set.Checkers {
		if err := control.CheckRemoteType(name); err != nil {
			tell("remote.checkers: %v", err)
		}
	}
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
