package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/setup"
	"github.com/drover-dev/drover/internal/git/merge"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/buildinfo"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/sandboxes"
)

// Doctor looks at what Drover needs.
func (b doctor) Doctor(ctx context.Context) []console.Finding {
	return append(b.looked(ctx), b.merges(ctx))
}

// looked is what the doctor finds without a change to anything.
func (b doctor) looked(ctx context.Context) []console.Finding {
	return []console.Finding{b.state(), b.disk(), b.socket(), b.readable(), b.Model(), shellFound(), system(),
		b.keeperFound(ctx), b.detachedHost(ctx)}
}

// TrySandbox tries the sandbox with the settings of the user.
func (b doctor) TrySandbox(ctx context.Context) ([]setup.SandboxCheck, error) {
	set, err := b.Settings("")
	if err == nil {
		err = b.root.Ensure()
	}
	if err != nil {
		return nil, err
	}
	checks, err := sandboxes.Try(ctx, assemble.Sandbox(b.opening(session.RoleRun, "", set)), b.root.Dir())
	out := make([]setup.SandboxCheck, len(checks))
	for i, c := range checks {
		out[i] = setup.SandboxCheck(c)
	}
	return out, err
}

// Seatbelt is a profile by the settings of the user.
func (b doctor) Seatbelt() (string, error) {
	set, err := b.Settings("")
	if err != nil {
		return "", err
	}
	s := sandboxes.New(b.sandbox(set))
	defer s.Close()
	return s.Seatbelt([]string{b.cwd}), nil
}

func (b doctor) state() console.Finding {
	f := console.Finding{Check: "state folder", Level: console.Good, Detail: b.root.Dir()}
	if err := b.root.Ensure(); err != nil {
		f.Level, f.Detail = console.Bad, err.Error()
	}
	return f
}

// merges finishes or takes back merges that were interrupted.
func (b doctor) merges(ctx context.Context) console.Finding {
	f := console.Finding{Check: "merges", Level: console.Good, Detail: "none was interrupted"}
	said, err := merge.Open(b.root.Merges(), worktree.Open(b.root.Worktrees())).Recover(ctx)
	if len(said) > 0 {
		f.Detail = strings.Join(said, "; ")
	}
	if err != nil {
		f.Level, f.Detail = console.Warn, err.Error()
		f.Fix = "run `drover merge` in its repository again"
	}
	return f
}

// disk looks for what tasks.minFreeBytes wants.
func (b doctor) disk() console.Finding {
	f := console.Finding{Check: "disk", Level: console.Good}
	room, err := b.root.Space()
	if err != nil {
		f.Level, f.Detail = console.Warn, err.Error()
		return f
	}
	f.Detail = fmt.Sprintf("%d MB are free for sessions", room.Bytes/1_000_000)
	set, _, err := settings.Load(settings.Find(home.Lookup(b.env), b.cwd, ""))
	least, fix := set.Tasks.MinFreeBytes, "free some space, see `drover sessions rm --old`"
	switch {
	case err != nil:
	case room.Bytes < least:
		f.Level, f.Fix = console.Warn, fix
		f.Detail += fmt.Sprintf(", fewer than tasks.minFreeBytes, %d bytes: nothing starts", least)
	case least > 0 && room.NoFiles():
		f.Level, f.Detail, f.Fix = console.Warn, f.Detail+", but no more files: nothing starts", fix
	}
	return f
}

func (b doctor) socket() console.Finding {
	path, err := b.root.Project(b.cwd).Session("s00000000").SocketPath(home.Lookup(b.env))
	if err != nil {
		return console.Finding{Check: "sockets", Level: console.Bad, Detail: err.Error()}
	}
	return console.Finding{Check: "sockets", Level: console.Good, Detail: filepath.Dir(path) + "/"}
}

func (b doctor) readable() console.Finding {
	src, _, _ := b.source("")
	_, notes, err := settings.Load(src)
	var texts []string
	for _, n := range notes {
		texts = append(texts, n.String())
	}
	switch {
	case err != nil:
		return console.Finding{Check: "settings", Level: console.Bad, Detail: err.Error()}
	case len(notes) > 0:
		return console.Finding{Check: "settings", Level: console.Warn, Detail: strings.Join(texts, "; ")}
	}
	return console.Finding{Check: "settings", Level: console.Good, Detail: "readable"}
}

// Model looks for usable providers, and whether the provider of the usual model is one. Another check reports
// faults of the settings.
func (b *folder) Model() console.Finding {
	src, _, _ := b.source("")
	set, _, _ := settings.Load(src)
	get := home.Lookup(assemble.Environ(b.env, set))
	ready := provider.Ready(get)
	f := console.Finding{Check: "model", Level: console.Good, Detail: "set up: " + strings.Join(ready, ", ")}
	_, err := new(provider.Finder).Find(set.Model, get, b.cwd)
	var missing *provider.MissingError
	switch {
	case errors.As(err, &missing) && len(ready) == 0:
		f.Level, f.Detail = console.Warn, "no key is set"
		f.Fix = "run `drover` in a terminal to set one up; or set ANTHROPIC_API_KEY; or OPENAI_API_KEY or OPENAI_BASE_URL, for --model openai/NAME; or use --model script:FILE"
	case errors.As(err, &missing): // others may be named
		f.Detail += fmt.Sprintf("; the usual model, %s, is of another provider", cmp.Or(set.Model, provider.Default))
		f.Fix = "set `model` in your settings, or name one with --model PROVIDER/NAME"
	case err != nil:
		f.Level, f.Detail = console.Warn, err.Error()
	case len(ready) == 0:
		f.Detail = "the usual model is " + set.Model
	}
	return f
}

func shellFound() console.Finding {
	path, err := exec.LookPath("bash")
	if err != nil {
		return console.Finding{Check: "bash", Level: console.Bad, Detail: "not on the PATH", Fix: "install it"}
	}
	return console.Finding{Check: "bash", Level: console.Good, Detail: path}
}

func system() console.Finding {
	f := console.Finding{Check: "system", Level: console.Good, Detail: runtime.GOOS + "/" + runtime.GOARCH}
	if runtime.GOOS != "linux" {
		f.Level, f.Detail = console.Warn, f.Detail+": escaped processes are not found here"
	}
	return f
}

// keeperFound looks for the small program of processes that stay alive. drover can do without.
func (b doctor) keeperFound(ctx context.Context) console.Finding {
	f := console.Finding{Check: "keeper", Level: console.Good}
	path := buildinfo.Companion(b.exe, keeperProgram)
	if path == "" {
		f.Detail = keeperProgram + " is not installed: drover does its work, with more memory"
		return f
	}
	out, err := exec.CommandContext(ctx, path, "--build").Output()
	id, mine := strings.TrimSpace(string(out)), buildinfo.ID()
	switch {
	case err != nil:
		f.Level, f.Detail, f.Fix = console.Bad, fmt.Sprintf("start %s: %v", path, err), "install it again, or remove it"
	case id == "" || id != mine:
		f.Level, f.Fix = console.Warn, "install both from the same sources"
		f.Detail = fmt.Sprintf("%s is of build %q, drover of %q: drover does its work, with more memory", path, id, mine)
	default:
		f.Detail = path
	}
	return f
}

func (b doctor) detachedHost(ctx context.Context) console.Finding {
	f := console.Finding{Check: "detached host", Level: console.Good,
		Detail: "not running; it starts with the next `drover run -d`"}
	entries, err := b.Known(ctx, true, false)
	if err != nil {
		return console.Finding{Check: "detached host", Level: console.Bad, Detail: err.Error()}
	}
	for _, e := range entries {
		if i := e.Info(); i.Role == session.RoleBackground {
			f.Detail = fmt.Sprintf("session %s, process %d", i.Session, i.PID)
		}
	}
	return f
}
