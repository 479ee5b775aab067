package home

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

const (
	hookOutputs     = "hooks"
	mostHookOutputs = 8
)

// NewHookOutput makes an empty file for the output of a hook. It keeps the 8 newest
// files, this one included; a hook that still writes to a removed file is not disturbed,
// and its output is lost. The caller makes one at a time.
func (s Session) NewHookOutput() (path string, err error) {
	name := "hook_" + strings.ToLower(rand.Text()[:12]) + ".output"
	if err := s.newHookOutput(name); err != nil {
		return "", fmt.Errorf("make a file for what a hook prints: %w", err)
	}
	return filepath.Join(s.HookOutputs(), name), nil
}

func (s Session) newHookOutput(name string) error {
	mine, err := s.Below().Folder(s.dir)
	if err != nil {
		return err
	}
	defer mine.Close()
	dir, err := ensure(mine, hookOutputs)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := dir.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), thin(dir, name, mostHookOutputs-1))
}

// thin removes the oldest files, never the new one, until so many others are left.
func thin(dir *saferoot.Folder, newest string, most int) error {
	names, err := dir.Names()
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	for _, name := range names {
		if !strings.HasPrefix(name, "hook_") || name == newest {
			continue
		}
		info, err := dir.Lstat(name)
		if err != nil {
			return err
		}
		files = append(files, info)
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files[:max(0, len(files)-most)] {
		if err := dir.RemoveAll(f.Name()); err != nil {
			return err
		}
	}
	return nil
}
