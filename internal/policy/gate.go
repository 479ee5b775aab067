package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
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
	Bypass      Mode = "bypassPermissions" // all that no rule denies is allowed
	Auto        Mode = "auto"
)

// Modes are the modes that people choose from.
func Modes() []Mode { return []Mode{Default, AcceptEdits, Plan, DontAsk, Bypass} }

// Rules are what a [Gate] decides by.
type Rules struct {
	Mode             Mode
	Allow, Ask, Deny []string // such as Bash(go test:*), Read(./.env), Agent

	Cwd  string        // absolute; rules and paths are relative to it
	Bash func() string // where the next shell line runs; nil: always in Cwd
	Dirs []string      // further roots, absolute

	// In a copy of a folder, bans on files speak of the original and of the copy:
	// relative ones are about Base, which is Cwd if it is empty.
	Base   string
	Copies []Copy

	Home string // for ~ in rules and paths; empty: such paths are asked, and such rules are errors
	Path string // where programs are looked for; empty: $PATH

	Memory   *Memory // shared by the gates of a session; nil: one of its own
	Filtered bool    // tools that list and search leave out what [Gate.MayRead] refuses

	// More gives allow rules that hold beside the others at the moment of a call,
	// such as those of skills in use. A wrong one allows nothing. nil: none.
	More func() []string
	// Only gives rules of which one covers every call that may be made at the moment of
	// a call, such as those of a command whose prompt is worked on. They allow nothing,
	// and no mode or hook allows what none of them covers. nil, and a nil list: none.
	Only func() []string

	ReadOnlyAuto bool // shell lines that only read need no rule

	Bounds Bounds // of commands; see [Gate.Within]

	Tools []agent.Tool // their aliases, and which only read

	// Answer puts a question to somebody, such as [task.Host.Ask]. With nil, or
	// Headless, every question is a denial.
	Answer   func(context.Context, task.Question) (task.Reply, error)
	Headless bool
}

// Bounds are what a sandbox does with the commands of an agent. They are known before a
// call is decided: deciding asks no sandbox and starts nothing. The zero value bounds nothing.
type Bounds struct {
	// Whole says that a sandbox bounds all that a command does, and that the user lets such
	// commands run without a rule. Deny rules, ask rules and protected files hold as ever.
	Whole bool
	// Hides says that it hides the files that deny rules of Read name; see [Gate.Denied].
	Hides bool
}

// Copy is a folder with a copy of another, both absolute. What a ban says of a
// place in Of it says of the same place in At.
type Copy struct{ Of, At string }

// CopiesOf are the copies of a folder at dir, and of the folder around it at top, both absolute.
func CopiesOf(of, dir, top string) []Copy {
	out := []Copy{{Of: of, At: dir}}
	if rel, err := filepath.Rel(top, dir); err == nil && rel != "." && filepath.IsLocal(rel) {
		if above, ok := strings.CutSuffix(of, string(filepath.Separator)+rel); ok && above != "" {
			out = append(out, Copy{Of: above, At: top})
		}
	}
	return out
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

	// Firm says that only an answer of the user changes the decision: it is a
	// denial, a question that a rule wants, or a shape that is dangerous.
	UserOnly bool `json:"user_only,omitempty"`

	// Suggest is the narrowest useful rule that would allow the call; empty: no
	// rule would. The reason ends with it.
	Suggest string `json:"suggest,omitempty"`

	told      bool   // the reason says what would allow the call
	outside   bool   // the path is outside the roots, and nothing else is wrong
	candidate string // a rule that may allow the call
}

// Gate decides by [Rules]. It never changes, and its methods may be called from
// several goroutines.
type Gate struct {
	rules            Rules
	allow, ask, deny []rule
	only             []rule   // nil: every call may be made
	roots            []string // resolved
	devices          []uint64 // file systems of the roots
	tools            map[string]toolInfo
	memory           *Memory
	bans             bool // some files may not be read
	paths            bool // or not be written
}

type toolInfo struct {
	name     string
	readOnly bool
}

var _ agent.Gate = (*Gate)(nil)

// New makes a gate, and returns the errors of the rules. The gate is good to
// use all the same: a wrong allow rule allows nothing, a wrong ask or deny rule
// holds for its whole tool, and for every tool if it names none.
func New(r Rules) (*Gate, []error) {
	g := &Gate{rules: r, tools: map[string]toolInfo{}, memory: r.Memory}
	if g.memory == nil {
		g.memory = NewMemory()
	}
	var errs []error
	switch r.Mode {
	case "", Auto:
		g.rules.Mode = Default
	case Default, AcceptEdits, Plan, DontAsk, Bypass:
	default:
		errs = append(errs, fmt.Errorf("permission mode %q is not known (use one of %v)", r.Mode, Modes()))
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
			var st syscall.Stat_t
			if syscall.Lstat(real, &st) == nil {
				g.devices = append(g.devices, uint64(st.Dev)) //nolint:unconvert // not on every system
			}
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
		if len(list.texts) > maxRules {
			errs = append(errs, fmt.Errorf("a list of permission rules has %d: at most %d are looked at (remove some)",
				len(list.texts), maxRules))
			if list.texts = list.texts[:maxRules]; !list.allow {
				*list.to = append(*list.to, rule{text: "more rules than are looked at", all: true})
			}
		}
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
	for _, list := range [][]rule{g.deny, g.ask} {
		g.paths = g.paths || slices.ContainsFunc(list, func(r rule) bool { return len(r.globs) > 0 })
		reads := func(r rule) bool { return len(r.globs) > 0 && kindOf(r.tool) != editTool }
		g.bans = g.bans || slices.ContainsFunc(list, reads)
	}
	return g, errs
}

// Check implements [agent.Gate]. An answer may bring another input, which is
// judged again: what a rule denies stays denied.
func (g *Gate) Check(ctx context.Context, c agent.Call) (agent.Decision, error) {
	v := g.Decide(c)
	switch v.Decision {
	case Allow:
		return agent.Decision{Allow: true}, nil
	case Deny:
		return agent.Decision{Reason: v.Reason, Suggest: v.Suggest}, nil
	}
	return g.Ask(ctx, c, v)
}

// Ask puts the question whether a call may run to somebody, whatever the rules
// say of it, and is a denial where nobody can answer or the mode asks nothing. The
// verdict says why it is asked, and the rule that would allow the call. A call that
// the answer changes is judged by what the rules deny.
func (g *Gate) Ask(ctx context.Context, c agent.Call, v Verdict) (agent.Decision, error) {
	reason := v.Reason
	refuse := func(why string) (agent.Decision, error) { return agent.Decision{Reason: why, Suggest: v.Suggest}, nil }
	if g.rules.Headless || g.rules.Answer == nil {
		return refuse("this needs permission, and nobody is there to give it: " + reason)
	}
	if g.rules.Mode == DontAsk {
		return refuse("mode dontAsk denies what is not allowed: " + reason)
	}
	sum := sha256.Sum256([]byte(string(task.Permission) + "\x00" + c.Name + "\x00" + string(c.Input)))
	reply, err := g.rules.Answer(ctx, task.Question{Kind: task.Permission, Tool: c.Name, ToolUseID: c.ID, Input: c.Input,
		Reason: reason, Suggest: v.Suggest, Digest: hex.EncodeToString(sum[:])})
	switch {
	case err != nil:
		return agent.Decision{}, fmt.Errorf("ask for permission to use %s: %w", c.Name, err)
	case !reply.Allow && reply.Reason == "":
		return refuse("permission was denied (" + reason + ")")
	case !reply.Allow && strings.HasPrefix(reply.Reason, "nobody "): // it was no person's decision
		return refuse(reply.Reason + ": " + reason)
	case !reply.Allow:
		return refuse(reply.Reason)
	case len(reply.Input) == 0:
		g.admit(c)
		return agent.Decision{Allow: true, Reason: reply.Reason}, nil
	}
	note := changedNote(c, reply.Input)
	c.Input = reply.Input
	if v := g.Decide(c); v.Decision == Deny {
		return agent.Decision{Reason: "the changed call is not allowed: " + v.Reason}, nil
	}
	g.admit(c)
	return agent.Decision{Allow: true, Reason: reply.Reason, Input: reply.Input, Context: note}, nil
}

// maxChangedNote bounds what a model reads of an input that a person has given instead, in bytes.
const maxChangedNote = 8 << 10

// changedNote tells the model that a person has changed its call; empty: the input is the same.
func changedNote(c agent.Call, input json.RawMessage) string {
	var was, now bytes.Buffer
	if json.Compact(&was, c.Input) != nil || json.Compact(&now, input) != nil || bytes.Equal(was.Bytes(), now.Bytes()) {
		return ""
	}
	text := strings.ReplaceAll(now.String(), "</", `<\/`) // the same JSON, which ends no tag
	if hidden := len(text) - maxChangedNote; hidden > 0 {
		text = strings.ToValidUTF8(text[:maxChangedNote], "") + fmt.Sprintf("… [%d bytes more]", hidden)
	}
	return excerpt.Element("system-reminder",
		fmt.Sprintf("The user has changed your call of %s before allowing it. It was "+
			"run with this input instead of yours: %s", c.Name, text))
}

// Grant is what the rules say of a call that somebody else, such as a hook, has
// allowed: a question that is only asked for want of a rule is allowed. A
// [Verdict] that is Firm stands.
func (g *Gate) Grant(c agent.Call) Verdict {
	g = g.with()
	v, r := g.decide(c)
	if v.Decision == Ask && !v.UserOnly {
		g.admit(c)
		return Verdict{Decision: Allow, Reason: "allowed by a hook"}
	}
	return g.settle(g.explain(r, v))
}

// request is a call as rules see it.
type request struct {
	tool     string
	readOnly bool
	text     string // command, URL or agent type
	path     string // of file tools, as it was written
	line     line   // of a shell
	tty      bool   // the command gets a terminal
	outside  bool   // the command does not run in the sandbox of the session
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
		if strings.Contains(r.text, "\x00") {
			r.bad = "the command holds a NUL byte"
		}
		r.line, r.tty = g.readLine(r.text), flagged(in, "tty")
		r.outside = flagged(in, "outside")
	case readTool, editTool:
		if r.path = text("file_path", "notebook_path", "path"); r.path == "" {
			r.bad = "there is no path"
		}
	case listTool:
		if r.path = text("path"); r.path == "" {
			r.path = g.rules.Cwd
		}
		// The part of a pattern without wildcards is a folder, as the tool reads it.
		if r.tool == "Glob" {
			base, rest := doublestar.SplitPattern(text("pattern"))
			switch {
			case strings.HasPrefix(base, "~"), strings.Contains(rest, ".."):
				r.bad = "the pattern leads out of its directory"
			case filepath.IsAbs(base):
				r.path = base
			case base != ".":
				r.path = filepath.Join(r.path, base)
			}
		}
	case webTool:
		r.text = text("url")
	case agentTool:
		r.text = text("subagent_type", "agent_type")
	case skillTool:
		r.text = text("skill")
	case taskTool:
		if id := text("task_id", "shell_id", "bash_id"); !taskName(id) {
			r.bad = "the ID of the task is not one"
		}
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
	skillTool
	taskTool // names a task
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
	case "Skill":
		return skillTool
	case "TaskOutput", "TaskStop", "AgentOutputTool", "BashOutputTool", "BashOutput", "KillShell":
		return taskTool
	}
	return otherTool
}

// taskName reports what may be the ID or the name of a task, and cannot be
// taken for a path or a device.
func taskName(id string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@"
	if id == "" || len(id) > 128 || strings.Trim(id, letters) != "" || strings.Trim(id, ".") == "" ||
		strings.HasPrefix(id, ".") {
		return false
	}
	base, _, _ := strings.Cut(strings.ToUpper(id), ".")
	switch base {
	case "CON", "PRN", "AUX", "NUL":
		return false
	}
	return !(len(base) == 4 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")) &&
		base[3] >= '0' && base[3] <= '9')
}

// Decide is what the rules say of a call. It asks nobody; it looks at links in
// the file system and at the configuration of a git repository.
func (g *Gate) Decide(c agent.Call) Verdict {
	g = g.with()
	v, r := g.decide(c)
	return g.settle(g.explain(r, v))
}

// DecideForeign is [Gate.Decide] of a call of another program, whose input may have a form that is
// not known here: that alone is a question, except in plan mode.
func (g *Gate) DecideForeign(c agent.Call) Verdict {
	v := g.Decide(c)
	bad := g.request(c).bad
	if v.Decision == Deny && v.Rule == "" && bad != "" && g.rules.Mode != Plan && g.with().only == nil {
		return Verdict{Decision: Ask, Reason: bad + " (only an answer allows it)", UserOnly: true}
	}
	return v
}

// deniedBy is the reason of a denial by a rule.
func deniedBy(rule string) string {
	return "denied by the rule " + rule + "; only removing that rule allows it"
}

// Within returns the gate for commands that are bounded so.
func (g *Gate) Within(b Bounds) *Gate {
	now := *g
	now.rules.Bounds = b
	return &now
}

// Starts reports whether a call starts a command, so that bounds matter to its decision.
func (g *Gate) Starts(c agent.Call) bool {
	name := c.Name
	if info, ok := g.tools[strings.ToLower(name)]; ok {
		name = info.name
	}
	return kindOf(name) == shellTool || name == watching
}

// Judge is [Gate.Decide] of a call of a tool with an input.
func (g *Gate) Judge(tool string, input json.RawMessage) Verdict {
	return g.Decide(agent.Call{Name: tool, Input: input})
}

// with is the gate with the rules that hold beside its own just now.
func (g *Gate) with() *Gate {
	var more, only []string
	if g.rules.More != nil {
		more = g.rules.More()
	}
	if g.rules.Only != nil {
		only = g.rules.Only()
	}
	if len(more) == 0 && only == nil {
		return g
	}
	now := *g
	now.allow = append(slices.Clone(g.allow), g.further(more)...)
	if only != nil {
		now.only = append([]rule{}, g.further(only)...)
	}
	return &now
}

// further reads allow rules and leaves out wrong ones.
func (g *Gate) further(texts []string) (out []rule) {
	for _, text := range texts {
		if rl, err := g.parseRule(text, true); err == nil {
			out = append(out, rl)
		}
	}
	return out
}

// barred reports whether no rule of those that calls are restricted to covers this one.
func (g *Gate) barred(r request) bool {
	switch kindOf(r.tool) {
	case readTool, listTool, editTool:
		narrow := *g
		narrow.allow, narrow.roots = g.only, nil
		v := narrow.approvePath(r.tool, r.path, kindOf(r.tool) == editTool)
		return r.bad != "" || v.Decision != Allow || v.Rule == ""
	case shellTool:
		return !slices.ContainsFunc(g.only, func(rl rule) bool { return rl.all && rl.covers(r.tool) })
	}
	_, covered := g.match(g.only, r)
	return !covered
}

// onlyReason tells a model what it may call.
func (g *Gate) onlyReason(tool string) string {
	texts := make([]string, len(g.only))
	for i, rl := range g.only {
		texts[i] = rl.text
	}
	return fmt.Sprintf("%s is not allowed while this prompt is worked on: it is restricted to %s (the allowed-tools of "+
		"its command would have to name it)", tool, strings.Join(texts, ", "))
}

// decide is the verdict of a call, and the request that it is about.
func (g *Gate) decide(c agent.Call) (Verdict, request) {
	if g.only != nil {
		if r := g.request(c); g.barred(r) {
			return Verdict{Decision: Deny, Reason: g.onlyReason(r.tool), UserOnly: true, told: true}, r
		}
	}
	if v, r, is := g.monitor(c); is {
		return v, r
	}
	r := g.request(c)
	return g.rule(r), r
}

func (g *Gate) rule(r request) Verdict {
	deny := func(why string) Verdict { return Verdict{Decision: Deny, Reason: why, UserOnly: true} }
	if hit, ok := g.match(g.deny, r); ok {
		return Verdict{Decision: Deny, Reason: deniedBy(hit), Rule: hit, UserOnly: true, told: true}
	}
	kind := kindOf(r.tool)
	if r.bad != "" && kind != otherTool {
		if kind == listTool {
			return Verdict{Decision: Ask, Reason: r.bad, UserOnly: true}
		}
		return deny(r.bad)
	}
	if r.path != "" && strange(r.path) == magicPath {
		return deny("a path that stands for another place")
	}
	if hit, ok := g.match(g.ask, r); ok {
		return Verdict{Decision: Ask, Reason: "to be asked by the rule " + hit, Rule: hit, UserOnly: true}
	}
	if v, ok := g.above(kind, r); ok {
		if r.outside && g.rules.Mode != Bypass {
			v.Reason, v.candidate = "it runs outside of the sandbox, and "+v.Reason, ""
		}
		return v
	}
	if g.rules.Mode == Bypass {
		return Verdict{Decision: Allow, Reason: "mode bypassPermissions"}
	}
	v := g.approve(kind, r)
	if r.outside && v.Decision != Deny {
		why := "it runs outside of the sandbox"
		if v.Decision == Ask {
			why += ", and " + v.Reason
		}
		v = Verdict{Decision: Ask, Reason: why, UserOnly: true}
	}
	if v.Decision == Ask && g.rules.Mode == Plan {
		v = deny("plan mode: only reading is allowed (" + v.Reason + "; ExitPlanMode or another permission mode ends it)")
		v.told = true
		return v
	}
	if v.Decision == Deny {
		v.UserOnly = true
	}
	return v
}

// above is what stands above every mode and every rule that allows, beside what
// is plainly banned: what may be banned, and writing of protected files.
func (g *Gate) above(kind toolKind, r request) (Verdict, bool) {
	protected := func(path, candidate string) (Verdict, bool) {
		why := "it writes the protected file " + path + ", which other programs run or obey"
		return Verdict{Decision: Ask, Reason: why, UserOnly: true, candidate: candidate}, true
	}
	switch kind {
	case editTool:
		w := literal(r.path)
		if path, rule := g.guards(w, line{text: r.path, dirs: []string{g.rules.Cwd}}); path != "" && g.rules.Mode != Plan {
			return protected(path, rule)
		}
	case shellTool:
		for _, list := range []struct {
			rules []rule
			verb  string
			hides bool
		}{{g.deny, "denies", g.rules.Bounds.Hides && !r.outside}, {g.ask, "asks about", false}} {
			if hit, why := g.doubt(list.rules, r.line, list.hides); hit != "" {
				why = "it may be what the rule " + hit + " " + list.verb + ": " + why
				return Verdict{Decision: Ask, Reason: why, Rule: hit, UserOnly: true}, true
			}
		}
		if path, rule := g.protected(r.line); path != "" && g.rules.Mode != Plan && !g.literally(r.line.text) {
			return protected(path, rule)
		}
	}
	return Verdict{}, false
}

// literally reports whether an allow rule is this line.
func (g *Gate) literally(text string) bool {
	text = strings.TrimSpace(text)
	return g.rules.Mode != Plan &&
		slices.ContainsFunc(g.allow, func(r rule) bool { return r.literal == text && r.covers("Bash") })
}

// settle makes a denial of a question in a mode that asks none.
func (g *Gate) settle(v Verdict) Verdict {
	if v.Decision == Ask && g.rules.Mode == DontAsk {
		v.Decision, v.Reason, v.UserOnly = Deny, "mode dontAsk denies what is not allowed: "+v.Reason, true
	}
	return v
}

// approve looks for what allows the call.
func (g *Gate) approve(kind toolKind, r request) Verdict {
	plan := g.rules.Mode == Plan
	switch kind {
	case shellTool:
		boxed := g.boxed(r)
		if r.tty && !boxed && !(g.bare() && !plan) {
			const why = "the command gets a terminal, and what is typed there is not looked at by the rules that allow"
			return Verdict{Decision: Ask, Reason: why, UserOnly: true}
		}
		return g.approveShell(r.line, boxed)
	case readTool, listTool:
		return g.approvePath(r.tool, r.path, false)
	case editTool:
		if plan {
			return Verdict{Decision: Ask, Reason: "it edits files"}
		}
		return g.approvePath(r.tool, r.path, true)
	case otherTool, taskTool:
		if r.readOnly {
			return Verdict{Decision: Allow, Reason: "a tool that only reads"}
		}
	}
	if hit, ok := g.match(g.allow, r); ok && !plan {
		return Verdict{Decision: Allow, Reason: "allowed by the rule " + hit, Rule: hit}
	}
	return Verdict{Decision: Ask, Reason: "no rule allows " + r.tool, candidate: toolRule(kind, r)}
}

// boxed reports whether the sandbox bounds a command so that no rule must allow it.
func (g *Gate) boxed(r request) bool {
	m := g.rules.Mode
	return (m == Default || m == AcceptEdits) && !r.outside && g.rules.Bounds.Whole
}

// bare reports whether a rule allows every command.
func (g *Gate) bare() bool {
	return slices.ContainsFunc(g.allow, func(r rule) bool { return r.all && r.covers("Bash") })
}

// flagged reports whether a field is set, in any spelling of its name and to anything but false.
func flagged(in map[string]json.RawMessage, name string) bool {
	for key, raw := range in {
		if strings.EqualFold(key, name) && !bytes.Equal(bytes.TrimSpace(raw), []byte("false")) {
			return true
		}
	}
	return false
}
