package assemble

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/sandboxes"
)

// Bounds of a secret and of the command that prints it.
const (
	maxSecret   = 16 << 10
	secretWait  = 30 * time.Second
	secretGrace = time.Second
)

// credentials are the secrets that commands use and do not get.
func credentials(c Config) (all []sandboxes.Credential) {
	env := home.Lookup(c.Env)
	for _, name := range slices.Sorted(maps.Keys(c.Settings.Sandbox.Credentials)) {
		o := c.Settings.Sandbox.Credentials[name]
		one := sandboxes.Credential{Name: name, Hosts: o.Hosts, Env: o.Env, User: o.User, Header: o.Header}
		one.Value = func(context.Context) (string, error) { return env(o.FromEnv), nil }
		if o.FromEnv != "" {
			one.Env = append(slices.Clone(one.Env), o.FromEnv)
		}
		if o.FromFile != "" {
			one.Hidden = below(env("HOME"), []string{o.FromFile})[0]
			one.Value = func(context.Context) (string, error) {
				data, err := home.ReadFile(one.Hidden, maxSecret)
				return string(data), err
			}
		}
		if o.FromCommand != "" {
			one.Value = func(ctx context.Context) (string, error) { return printed(ctx, c, o) }
		}
		all = append(all, one)
	}
	return all
}

// printed is what the command of a credential prints. An error has nothing of it.
func printed(ctx context.Context, c Config, o options.SandboxCredential) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, secretWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", o.FromCommand)
	cmd.Env, cmd.Dir, cmd.WaitDelay = c.Env, c.Folder, secretGrace
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %.200q: %w", o.FromCommand, err)
	}
	if out.Len() > maxSecret {
		return "", fmt.Errorf("run %.200q: it prints more than %d bytes", o.FromCommand, maxSecret)
	}
	return out.String(), nil
}
