package agents

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/acpclient"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/git/worktree"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// modelOfOthers is the model that an agent of another vendor is asked to use; empty: its own
// choice. The error is for a program that cannot be started yet.
func modelOfOthers(in subagent.Input, def subagent.Definition) (string, error) {
	if def.ACP.Command == "" {
		return "", control.Refuse(control.Unavailable,
			fmt.Sprintf("agent %s is a program that waits for trust in the folder of its definition", def.Name),
			"see `drover trust`")
	}
	model := cmp.Or(in.Model, def.Model)
	if model == "inherit" {
		return "", nil
	}
	return model, nil
}

// profile is the sandbox of an agent of another vendor: the sandbox of the session, in which its
// credentials and its provider can be reached.
func (c *Child) profile(lookup func(string) string) *sandboxes.Sandboxes {
	p := c.def.ACP.Known()
	own := sandboxes.Profile{Name: c.def.Name, Hosts: p.Hosts, Local: map[int]string{}}
	for _, kv := range childEnv(c.Env, p, lookup) {
		if name, value, _ := strings.Cut(kv, "="); name == "ANTHROPIC_BASE_URL" || name == "OPENAI_BASE_URL" {
			maps.Copy(own.Local, gateway(value))
		}
	}
	for _, f := range p.Folders {
		if dir := lookup("HOME"); dir != "" && filepath.IsLocal(f) {
			own.Own = append(own.Own, filepath.Join(dir, f))
		}
	}
	return c.s.sandboxes.Profile(own)
}

// gateway is the host of an address on this machine, by its port; empty: it is elsewhere.
func gateway(address string) map[int]string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return nil
	}
	port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
	if err != nil {
		return nil
	}
	return map[int]string{port: u.Hostname()}
}

// wish is how a program of an agent of another vendor is bounded.
func (c *Child) wish(me Caller, line string) sandboxes.Wish {
	mode := sandboxes.Stricter(me.sandbox, sandboxes.Mode(c.def.Sandbox))
	return sandboxes.Wish{Folders: me.folders(), Line: line, Mode: mode}
}

// held says by what the process of an agent of another vendor will be bounded; nil: by nothing, or
// it is one of ours.
func (c *Child) held() (*task.Sandbox, error) {
	if c.def.ACP == nil {
		return nil, nil
	}
	start, err := c.profile(home.Lookup(c.Env)).Command(c.wish(c.Caller, c.def.ACP.Command))
	if err != nil {
		return nil, control.Refuse(control.Unavailable, err.Error(), "")
	}
	return start.Held, nil
}

// openOutside starts an agent of another vendor, which answers in place of a model.
func (c *Child) openOutside(ctx context.Context, h task.Host, k *Environment) error {
	me, def := k.Me, c.def.ACP.Known()
	lookup := home.Lookup(me.Env)
	env := childEnv(me.Env, def, lookup)
	box := c.profile(lookup)
	args := append([]string{def.Command}, def.Args...)
	bounds := func(line string) (acpclient.Bounds, error) {
		w := c.wish(me, cmp.Or(line, shell.Quote(args...)))
		w.Reach, w.Tell = k.reach, line == "" // the agent itself does not say to what it cannot connect
		given, from := env, box
		if line != "" { // a command of the agent is bounded as every other command
			given, from = process.ChildEnv(me.Env), c.s.sandboxes
		}
		start, err := from.Command(w)
		if err != nil {
			return acpclient.Bounds{}, err
		}
		return acpclient.Bounds{Env: start.Environ(given), Fork: start.Fork}, nil
	}
	session := ""
	if c.again {
		session = acpclient.Earlier(h.Record())
	}
	err := c.outside.Open(ctx, acpclient.Options{
		Name: c.def.Name, Args: args, Dir: me.Cwd, Login: def.Login, Protocol: def.Protocol, Host: h,
		Model: me.Model, Mode: def.Mode,
		Instructions: c.def.Prompt, Session: session,
		Bounds: bounds, Permit: k.permitOutside, Files: outsideFiles{k},
	})
	k.Config.Model = c.outside
	return err
}

// childEnv is the environment of an agent of another vendor: the environment of commands, its own
// credentials, and the variables of its definition.
func childEnv(env []string, a subagent.ACP, lookup func(string) string) []string {
	out := process.ChildEnv(env)
	set := func(name, value string) {
		out = slices.DeleteFunc(out, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		out = append(out, name+"="+value)
	}
	for _, key := range a.Keys {
		if v := lookup(key); v != "" {
			set(key, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		set(name, os.Expand(a.Env[name], lookup))
	}
	return out
}

// permitOutside decides whether an agent of another vendor may do something, and tells the user of
// each denial.
func (k *Environment) permitOutside(ctx context.Context, w acpclient.Wanted) (agent.Decision, error) {
	d, err := k.decideOutside(ctx, w)
	if err == nil && !d.Allow && ctx.Err() == nil {
		k.s.Report.Once(fmt.Sprintf("%s: %s call denied: %s", k.def.Name, w.Shown.Name, d.Reason))
	}
	return d, err
}

// decideOutside decides whether an agent of another vendor may do something. A request that is not
// understood is asked about, unless a rule denies it.
func (k *Environment) decideOutside(ctx context.Context, w acpclient.Wanted) (agent.Decision, error) {
	if w.Understood {
		for _, call := range w.Calls {
			d, err := k.Config.Gate.Check(ctx, call)
			if err == nil && d.Allow && d.Input != nil && string(d.Input) != string(call.Input) {
				d = agent.Decision{Reason: "the call was changed, and an agent of another vendor cannot be given another input"}
			}
			if err != nil || !d.Allow {
				return d, err
			}
		}
		return agent.Decision{Allow: true}, nil
	}
	for _, call := range append(slices.Clip(w.Calls), w.Shown) {
		if v := k.GateOf(call).DecideForeign(call); v.Decision == policy.Deny {
			return agent.Decision{Reason: v.Reason, Suggest: v.Suggest}, nil
		}
	}
	return k.Gate().Ask(ctx, w.Shown, policy.Verdict{Decision: policy.Ask,
		Reason: "what " + k.def.Name + " wants to do is not understood, so no rule allows it"})
}

// outsideFiles are the files of an agent of another vendor.
type outsideFiles struct{ k *Environment }

// maxOutsideFile is how much of a file is read.
const maxOutsideFile = 32 << 20

func (f outsideFiles) area() confine.Area {
	me := f.k.Me
	return confine.Area{Root: me.Cwd, Dirs: me.Rules.Dirs,
		Outside: func(tool, real string) bool { return f.k.Gate().MayUse(tool, real) },
		MayOpen: func(file *os.File, change bool) bool { return f.k.Gate().MayOpen(file, change) }}
}

// Read implements [acpclient.Files].
func (f outsideFiles) Read(_ context.Context, path string) (string, error) {
	place, err := f.area().Find("Read", path)
	if err != nil {
		return "", err
	}
	if !f.k.Gate().MayRead(place.Path()) {
		return "", fmt.Errorf("read %s: a permission rule denies it", path)
	}
	file, err := place.OpenFile(os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("read %s: it is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxOutsideFile+1))
	if err == nil && len(data) > maxOutsideFile {
		err = fmt.Errorf("read %s: it has more than %d MiB", path, maxOutsideFile>>20)
	}
	return string(data), err
}

// Write implements [acpclient.Files].
func (f outsideFiles) Write(_ context.Context, path, content string) error {
	place, err := f.area().Find("Write", path)
	if err != nil {
		return err
	}
	root, err := place.Open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if dir := filepath.Dir(place.Rel); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if info, err := root.Stat(place.Rel); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write %s: it is no regular file", path)
	}
	file, err := place.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	if shut := file.Close(); err == nil {
		err = shut
	}
	if err == nil {
		f.k.s.edits.Record(worktree.Editor{Task: f.k.Me.ID, Name: f.k.Me.name()}, place.Path())
	}
	return err
}
