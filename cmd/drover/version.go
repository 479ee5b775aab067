package main

import (
	"cmp"
	"runtime/debug"
)

// series is the release that the sources are on the way to.
const series = "0.1.0"

// versionOf is the version of this program: that of a release, of the module for
// `go install`, or of the commit of a checkout.
func versionOf() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(version, series+"-dev")
	}
	return versionFrom(version, info)
}

func versionFrom(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	setting := func(key string) string {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
		return ""
	}
	commit := setting("vcs.revision")
	if commit == "" {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			return v
		}
		return series + "-dev"
	}
	v := series + "-dev+" + commit[:min(12, len(commit))]
	if setting("vcs.modified") == "true" {
		v += ".modified"
	}
	return v
}
