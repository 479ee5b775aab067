// Package buildinfo identifies the build of this program, and finds other programs of Drover. It starts none.
package buildinfo

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime/debug"
)

// series is the release that the sources are on the way to.
const series = "0.1.0"

// The linker sets these: version for a release, and stamp where the commit does not identify the sources, which
// `make build` does.
//
//rules:constant the linker can set variables only
var version, stamp = "", ""

// Version is the version of this program: of a release, of the module for `go install`, or of the commit of a checkout.
func Version() string {
	v, _ := this()
	return v
}

// ID identifies the sources of this program: programs with the same ID are of one build. It is empty for a program
// that was built from a changed or unknown checkout.
func ID() string {
	if stamp != "" {
		return stamp
	}
	v, exact := this()
	if !exact {
		return ""
	}
	return v
}

func this() (v string, exact bool) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(version, series+"-dev"), version != ""
	}
	return versionFrom(version, info)
}

func versionFrom(linked string, info *debug.BuildInfo) (v string, exact bool) {
	if linked != "" {
		return linked, true
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
			return v, true
		}
		return series + "-dev", false
	}
	v = series + "-dev+" + commit[:min(12, len(commit))]
	if setting("vcs.modified") == "true" {
		return v + ".modified", false
	}
	return v, true
}

// Companion returns the path of a program that is in the folder of the program exe, or "".
func Companion(exe, name string) string {
	path := filepath.Join(filepath.Dir(exe), name)
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return ""
	}
	return path
}
