package permit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// Mode is what happens to calls that no rule speaks of.
type Mode string

// The modes. The empty mode and auto are default.
const (
	Default     Mode = "default"           // reading inside the roots is allowed, the rest asked
	AcceptEdits Mode = "acceptEdits"       // and edits inside the roots
	Plan        Mode = "plan"              // reading only; the rest is denied
	DontAsk     Mode = "dontAsk"           // what would be asked is denied
	Bypass      Mode = "bypassPermissions" // what is not denied by a rule is allowed
	Auto        Mode = "auto"
)

// Rules are what a [Gate] decides by.
type Rules struct {
	Mode             Mode
	Allow, Ask, Deny []string // such as Bash(go test:*), Read(./.env), Agent

	Cwd  string        // absolute; rules and paths are relative to it
	Bash func() string // where the next shell line runs; nil: always in Cwd
	Dirs []string      // further roots, absolute
	Home string        // for ~ in rules and paths; empty: such paths are asked, and such rules are errors
	Path string        // where programs are looked for; empty: $PATH

	ReadOnlyAuto bool         // shell lines that only read need no rule
	Tools        []agent.Tool // for aliases, and for what is read-only

	// Answer puts a question to somebody, such as [task.Host.Ask]. With nil, or
	// Headless, every question is a denial.
	Answer   func(context.Context, task.Question) (task.Reply, error)
	Headless bool
}

// Outcome is one of allow, ask and deny.
type Outcome string

// The outcomes. The empty one is none of them.
const (
	Allow Outcome = "allow"
	Ask   Outcome = "ask"
	Deny  Outcome = "deny"
)

// Verdict is what the rules say of a call.
type Verdict struct {
	Decision Outcome `json:"decision"`
	Reason   string  `json:"reason"`
	Rule     string  `json:"rule,omitempty"` // as it was written
}

// Gate decides by [Rules]. It never changes, and its methods may be called from
// several goroutines.
type Gate struct {
	rules            Rules
	allow, ask, deny []rule
	roots            []string // resolved
	tools            map[string]toolInfo
}

type toolInfo struct {
	name     string
	readOnly bool
}

var _ agent.Gate = (*Gate)(nil)

// New makes a gate, and tells what is wrong with the rules. The gate is good to
// use all the same: a wrong allow rule allows nothing, a wrong ask or deny rule
// holds for its whole tool, and for every tool if it names none.
func New(r Rules) (*Gate, []error) {
	g := &Gate{rules: r, tools: map[string]toolInfo{}}
	var errs []error
	switch r.Mode {
	case "", Auto:
		g.rules.Mode = Default
	case Default, AcceptEdits, Plan, DontAsk, Bypass:
	default:
		errs = append(errs, fmt.Errorf("permission mode %q is not known (use default, acceptEdits, plan, dontAsk or bypassPermissions)", r.Mode))
		g.rules.Mode = Default
	}
	if !filepath.IsAbs(r.Cwd) {
		errs = append(errs, fmt.Errorf("working directory %q is not an absolute path", r.Cwd))
	}
	if r.Path == "" {
		g.rules.Path = os.Getenv("PATH")
	}
	for _, dir := range append([]string{r.Cwd}, r.Dirs...) {
		if real, err := resolve(dir); err == nil && filepath.IsAbs(dir) {
			g.roots = append(g.roots, real)
		}
	}
	for _, t := range r.Tools {
		info := toolInfo{name: t.Spec().Name}
		if ro, ok := t.(agent.ReadOnly); ok {
			info.readOnly = ro.ReadOnly()
		}
		g.tools[strings.ToLower(info.name)] = info
		if a, ok := t.(agent.Aliased); ok {
			for _, alias := range a.Aliases() {
				g.tools[strings.ToLower(alias)] = info
			}
		}
	}
	for _, list := range []struct {
		texts []string
		to    *[]rule
		allow bool
	}{{r.Allow, &g.allow, true}, {r.Ask, &g.ask, false}, {r.Deny, &g.deny, false}} {
		for _, text := range list.texts {
			rl, err := g.parseRule(text, list.allow)
			if err != nil {
				errs = append(errs, fmt.Errorf("permission rule %.80q: %w", text, err))
				if list.allow {
					continue
				}
			}
			*list.to = append(*list.to, rl)
		}
	}
	return g, errs
}

// Check implements [agent.Gate].
func (g *Gate) Check(ctx context.Context, c agent.Call) (agent.Decision, error) {
	v := g.Decide(c)
	switch v.Decision {
	case Allow:
		return agent.Decision{Allow: true}, nil
	case Deny:
		return agent.Decision{Reason: v.Reason}, nil
	}
	if g.rules.Headless || g.rules.Answer == nil {
		return agent.Decision{Reason: v.Reason + "; this needs permission, and nobody is there to give it"}, nil
	}
	sum := sha256.Sum256([]byte(c.Name + "\x00" + string(c.Input)))
	reply, err := g.rules.Answer(ctx, task.Question{
		Tool: c.Name, Input: c.Input, Reason: v.Reason, Digest: hex.EncodeToString(sum[:]),
	})
	if err != nil {
		return agent.Decision{}, fmt.Errorf("ask for permission to use %s: %w", c.Name, err)
	}
	if !reply.Allow && reply.Reason == "" {
		reply.Reason = "permission was denied"
	}
	return agent.Decision{Allow: reply.Allow, Reason: reply.Reason}, nil
}

// request is a call as rules see it.
type request struct {
	tool     string
	readOnly bool
	text     string // command, URL or agent type
	path     string // of file tools, as it was written
	bad      string // why the input cannot be judged
}

func (g *Gate) request(c agent.Call) request {
	r := request{tool: c.Name}
	if info, ok := g.tools[strings.ToLower(c.Name)]; ok {
		r.tool, r.readOnly = info.name, info.readOnly
	}
	in := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Input, &in); err != nil {
		r.bad = "the input is not a JSON object"
		return r
	}
	text := func(names ...string) string {
		var found string
		for key, raw := range in {
			// A tool may read keys without regard to case, and only one of two
			// names: what is judged must be what is done.
			if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, key) }) {
				continue
			}
			var s string
			switch {
			case json.Unmarshal(raw, &s) != nil:
				r.bad = key + " is not text"
			case !slices.Contains(names, key), found != "" && found != s:
				r.bad = key + " is given in more than one way"
			default:
				found = s
			}
		}
		return found
	}
	switch kindOf(r.tool) {
	case shellTool:
		if r.text = text("command"); strings.TrimSpace(r.text) == "" {
			r.bad = "there is no command"
		}
	case readTool, editTool:
		if r.path = text("file_path", "notebook_path", "path"); r.path == "" {
			r.bad = "there is no path"
		}
	case listTool:
		if r.path = text("path"); r.path == "" {
			r.path = g.rules.Cwd
		}
		// A pattern can lead out of the directory it begins in.
		if p := text("pattern"); r.tool == "Glob" && (strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") || strings.Contains(p, "..")) {
			r.bad = "the pattern leads out of its directory"
		}
	case webTool:
		r.text = text("url")
	case agentTool:
		r.text = text("subagent_type", "agent_type")
	}
	return r
}

type toolKind int

const (
	otherTool toolKind = iota
	shellTool
	readTool
	listTool // reads below a directory
	editTool
	webTool
	agentTool
)

func kindOf(tool string) toolKind {
	switch tool {
	case "Bash":
		return shellTool
	case "Read", "LS":
		return readTool
	case "Glob", "Grep":
		return listTool
	case "Edit", "Write", "MultiEdit", "NotebookEdit":
		return editTool
	case "WebFetch", "WebSearch":
		return webTool
	case "Agent", "Task":
		return agentTool
	}
	return otherTool
}

// Decide is what the rules say of a call. It asks nobody; it looks at links in
// the file system and at the configuration of a git repository.
func (g *Gate) Decide(c agent.Call) Verdict {
	r := g.request(c)
	if hit, ok := g.match(g.deny, r); ok {
		return Verdict{Deny, "denied by the rule " + hit, hit}
	}
	kind := kindOf(r.tool)
	if r.bad != "" && kind != otherTool {
		if kind == listTool {
			return g.settle(Verdict{Decision: Ask, Reason: r.bad})
		}
		return Verdict{Decision: Deny, Reason: r.bad}
	}
	if r.path != "" && strange(r.path) == magicPath {
		return Verdict{Decision: Deny, Reason: "a path below /proc that stands for another place"}
	}
	if g.rules.Mode == Bypass {
		return Verdict{Decision: Allow, Reason: "mode bypassPermissions"}
	}
	if hit, ok := g.match(g.ask, r); ok {
		return g.settle(Verdict{Ask, "to be asked by the rule " + hit, hit})
	}
	v := g.approve(kind, r)
	if v.Decision != Allow && g.rules.Mode == Plan {
		return Verdict{Decision: Deny, Reason: "plan mode: only reading is allowed (" + v.Reason + ")"}
	}
	return g.settle(v)
}

// settle makes a denial of a question in a mode that asks none.
func (g *Gate) settle(v Verdict) Verdict {
	if v.Decision == Ask && g.rules.Mode == DontAsk {
		v.Decision, v.Reason = Deny, v.Reason+"; mode dontAsk denies what is not allowed"
	}
	return v
}

// approve looks for what allows the call.
func (g *Gate) approve(kind toolKind, r request) Verdict {
	plan := g.rules.Mode == Plan
	switch kind {
	case shellTool:
		return g.approveShell(r.text)
	case readTool, listTool:
		return g.approvePath(r.tool, r.path, false)
	case editTool:
		if plan {
			return Verdict{Decision: Ask, Reason: "it edits files"}
		}
		return g.approvePath(r.tool, r.path, true)
	case otherTool:
		if r.readOnly {
			return Verdict{Decision: Allow, Reason: "a tool that only reads"}
		}
	}
	if hit, ok := g.match(g.allow, r); ok && !plan {
		return Verdict{Allow, "allowed by the rule " + hit, hit}
	}
	return Verdict{Decision: Ask, Reason: "no rule allows " + r.tool}
}
