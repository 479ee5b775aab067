package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestVersionFrom(t *testing.T) {
	checkout := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		name, linked string
		info         debug.BuildInfo
		want         string
		exact        bool
	}{
		{"release", "0.1.0", debug.BuildInfo{Settings: checkout}, "0.1.0", true},
		{"install", "", debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "v0.1.0", true},
		{"checkout", "", debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122"}, Settings: checkout[:1]}, "0.1.0-dev+0123456789ab", true},
		{"modified", "", debug.BuildInfo{Settings: checkout}, "0.1.0-dev+0123456789ab.modified", false},
		{"unknown", "", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "0.1.0-dev", false},
	} {
		if got, exact := versionFrom(c.linked, &c.info); got != c.want || exact != c.exact {
			t.Errorf("%s: %s, %t, want %s, %t", c.name, got, exact, c.want, c.exact)
		}
	}
}
