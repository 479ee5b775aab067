package main

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
	}{
		{"release", "0.1.0", debug.BuildInfo{Settings: checkout}, "0.1.0"},
		{"install", "", debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "v0.1.0"},
		{"checkout", "", debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122"}, Settings: checkout[:1]}, "0.1.0-dev+0123456789ab"},
		{"modified", "", debug.BuildInfo{Settings: checkout}, "0.1.0-dev+0123456789ab.modified"},
		{"unknown", "", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "0.1.0-dev"},
	} {
		if got := versionFrom(c.linked, &c.info); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
