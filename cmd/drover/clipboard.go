package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/prompt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/picture"
)

// image reads an image of a prompt from a file.
func (b screens) image(_ context.Context, path string) (control.Image, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(home.Lookup(b.env)("HOME"), rest)
	}
	return prompt.ReadImage(b.cwd, path)
}

// clipboardWait is how long a tool may take to hand over what is in the clipboard.
const clipboardWait = 5 * time.Second

// errNoClipboard says that no tool reads the clipboard.
var errNoClipboard = errors.New("read an image from the clipboard: no tool for it is here " +
	"(install wl-paste, xclip or pngpaste, or paste the path of a file)")

// clipboard reads an image from the clipboard, with the tool that the desktop has for it.
func (b screens) clipboard(ctx context.Context) (control.Image, error) {
	ctx, done := context.WithTimeout(ctx, clipboardWait)
	defer done()
	env := home.Lookup(b.env)
	var list, read []string
	switch {
	case env("WAYLAND_DISPLAY") != "" && installed("wl-paste"):
		list, read = []string{"wl-paste", "--list-types"}, []string{"wl-paste", "--no-newline", "--type"}
	case env("DISPLAY") != "" && installed("xclip"):
		x := []string{"xclip", "-selection", "clipboard", "-o", "-t"}
		list, read = append(x[:5:5], "TARGETS"), x
	case installed("pngpaste"):
		return b.clipboardImage(ctx, "pngpaste", "-")
	default:
		return control.Image{}, errNoClipboard
	}
	types, err := b.output(ctx, list...)
	if err != nil {
		return control.Image{}, fmt.Errorf("read an image from the clipboard: %w", err)
	}
	there := strings.Fields(string(types))
	for _, kind := range []string{"image/png", "image/jpeg", "image/webp", "image/gif"} {
		for _, t := range there {
			if t == kind {
				return b.clipboardImage(ctx, append(read, kind)...)
			}
		}
	}
	return control.Image{}, errors.New("read an image from the clipboard: it holds none")
}

func (b screens) clipboardImage(ctx context.Context, command ...string) (control.Image, error) {
	data, err := b.output(ctx, command...)
	kind := ""
	if err == nil {
		kind, err = picture.Check(data)
	}
	if err != nil {
		return control.Image{}, fmt.Errorf("read an image from the clipboard: %w", err)
	}
	return control.Image{Name: "clipboard." + strings.TrimPrefix(kind, "image/"), Data: data}, nil
}

func installed(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}

// output is what a tool prints, up to what an image may have and a byte more.
func (b screens) output(ctx context.Context, command ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = b.cwd, b.env, time.Second
	var out, fault bytes.Buffer
	cmd.Stdout = &capped{Buffer: &out, room: picture.MaxBytes + 1}
	cmd.Stderr = &capped{Buffer: &fault, room: 1 << 10}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command[0], err, strings.TrimSpace(fault.String()))
	}
	return out.Bytes(), nil
}
