package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/jsonc"
	"github.com/drover-dev/drover/internal/platform/untrusted"
)

const (
	defaultTimeout = time.Minute
	maxTimeout     = 10 * time.Minute
	maxFile        = 1 << 20
	maxHooks       = 1000 // of one source
)

// Source is text that names hooks: a file, or the hooks of settings or of the
// definition of an agent, as JSON.
type Source struct {
	Path    string // for messages
	Data    []byte
	Trusted bool     // its hooks may run
	User    bool     // it is the user's own, and needs no trust
	Agent   bool     // of the definition of an agent, where Stop means its SubagentStop
	Bounded bool     // of a project: its commands start within [Base.Bound]
	Env     []string // variables of its commands
}

// Problem is something about a source that the user should know. It has no other
// effect than its text says.
type Problem struct {
	Path  string
	Event string // as it was written; empty: the whole source
	What  string
	Fix   string // what to do about it
}

func (p Problem) String() string {
	at := p.Path
	if p.Event != "" {
		at += ": " + p.Event
	}
	return fmt.Sprintf("%s: %s (%s)", at, p.What, p.Fix)
}

// Entry is a hook, for those who list or trust it.
type Entry struct {
	Path    string        `json:"path"`
	Event   string        `json:"event"` // as it was written
	Matcher string        `json:"matcher,omitempty"`
	Command string        `json:"command"`
	Dialect string        `json:"dialect"` // claude or copilot: whose rules for exit codes hold
	Timeout time.Duration `json:"timeout_ns"`
	Runs    bool          `json:"runs"` // false: its source is not trusted
	Bounded bool          `json:"bounded,omitempty"`
}

// Callback is a hook without a command, such as a function of a program that drives
// Drover. Its answer counts like the answer of a command with exit code 0; an error
// means that the hook could not be run.
type Callback struct {
	Event   string
	Matcher string
	Timeout time.Duration // 0: 60 s
	// Call is required, and must return when ctx ends.
	Call func(ctx context.Context, payload json.RawMessage) (json.RawMessage, error)
}

// Set is the hooks of some sources. It never changes. The zero value has none.
type Set struct{ hooks []hook }

// hook is one entry of a source.
type hook struct {
	fact    fact
	name    string // of the event, as it was written
	says    string // the same in its payload
	camel   bool   // its payload is spelled in camelCase
	copilot bool   // its exit codes have the meaning that Copilot gives them
	matcher matcher
	source  string
	runs    bool
	bounded bool

	command string
	dir     string // below the project; empty: the project
	env     []string
	timeout time.Duration
	async   bool
	call    func(context.Context, json.RawMessage) (json.RawMessage, error)
}

// ReadPlugin reads the hooks of a plugin, whose folder is the user's own. More than [Load]
// takes is not read.
func ReadPlugin(dir string) (Source, error) {
	src := Source{Path: filepath.Join(dir, "hooks", "hooks.json"), Trusted: true, User: true,
		Env: []string{"CLAUDE_PLUGIN_ROOT=" + dir}}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return src, fmt.Errorf("read hooks: %w", err)
	}
	defer root.Close()
	src.Data, err = untrusted.Read(root, "hooks/hooks.json", maxFile)
	if errors.Is(err, untrusted.ErrSize) {
		src.Data, err = make([]byte, maxFile+1), nil // Load says so
	}
	if err != nil {
		return src, fmt.Errorf("read hooks: %w", err)
	}
	return src, nil
}

// Load reads sources in order. What cannot be used is reported and passed over;
// a matcher that cannot be read makes a hook that may deny match everything, and
// any other nothing.
func Load(sources []Source) (*Set, []Problem) {
	set, problems := new(Set), []Problem(nil)
	for _, src := range sources {
		l := &loader{src: src}
		l.file()
		for i, h := range l.hooks {
			l.hooks[i].env = slices.Concat(src.Env, h.env)
		}
		set.hooks = append(set.hooks, l.hooks...)
		problems = append(problems, l.problems...)
	}
	return set, problems
}

// Join returns the hooks of both, first the hooks of s.
func (s *Set) Join(more *Set) *Set {
	return &Set{slices.Concat(s.hooks, more.hooks)}
}

// With adds callbacks after the hooks of s. It refuses a callback for an event that
// is never sent.
func (s *Set) With(callbacks ...Callback) (*Set, []Problem) {
	l := &loader{src: Source{Path: "callback", User: true}}
	for _, c := range callbacks {
		f, ok := l.event(c.Event)
		if !ok {
			continue
		}
		h := l.hook(f, c.Event, c.Matcher)
		h.call, h.timeout = c.Call, defaultTimeout
		if c.Timeout > 0 {
			h.timeout = min(c.Timeout, maxTimeout)
		}
		l.hooks = append(l.hooks, h)
	}
	return &Set{slices.Concat(s.hooks, l.hooks)}, l.problems
}

// Entries lists all hooks.
func (s *Set) Entries() []Entry {
	out := make([]Entry, 0, len(s.hooks))
	for _, h := range s.hooks {
		out = append(out, h.entry())
	}
	return out
}

// Inert lists what would run if its source were trusted.
func (s *Set) Inert() []Entry {
	return slices.DeleteFunc(s.Entries(), func(e Entry) bool { return e.Runs })
}

// Has reports whether something would run at the event.
func (s *Set) Has(e Event) bool {
	return slices.ContainsFunc(s.hooks, func(h hook) bool { return h.runs && h.fact.event == e })
}

func (h hook) entry() Entry {
	dialect := "claude"
	if h.copilot {
		dialect = "copilot"
	}
	return Entry{
		Path:    h.source,
		Event:   h.name,
		Matcher: h.matcher.text,
		Command: h.command,
		Dialect: dialect,
		Timeout: h.timeout,
		Runs:    h.runs,
		Bounded: h.bounded,
	}
}

// loader reads one source.
type loader struct {
	src      Source
	copilot  bool
	hooks    []hook
	problems []Problem
}

func (l *loader) problem(event, what, fix string) {
	l.problems = append(l.problems, Problem{Path: l.src.Path, Event: event, What: what, Fix: fix})
}

const movedAway = "correct it, or move it away"

func (l *loader) file() {
	if len(l.src.Data) > maxFile {
		l.problem("", "it is larger than 1 MiB, and none of its hooks runs", "make it smaller")
		return
	}
	top, err := jsonc.Members(jsonc.Plain(l.src.Data))
	if err != nil {
		l.problem("", "it cannot be read, and none of its hooks runs: "+err.Error(), movedAway)
		return
	}
	version, inner := top.Get("version"), top.Get("hooks")
	if off := top.Get("disableAllHooks"); string(off) == "true" {
		l.problem("", "disableAllHooks is set: none of its hooks runs", "remove it if they should")
		return
	}
	switch {
	case version != nil && string(version) != "1":
		l.problem("", "its version is "+short(version)+", and 1 is what is known; it is read as if it were that",
			"write \"version\": 1")
		fallthrough
	case version != nil:
		l.copilot = true
	}
	switch {
	case inner != nil:
		if top, err = jsonc.Members(inner); err != nil {
			l.problem("", "hooks cannot be read: "+err.Error(), movedAway)
			return
		}
	default: // the form without the outer key, maybe among other settings
		top = slices.DeleteFunc(top, func(m jsonc.Member) bool { return !eventLike(m) })
	}
	for _, m := range top {
		l.list(m.Key, m.Value)
	}
	if len(l.hooks) > maxHooks {
		l.problem("", fmt.Sprintf("it has %d hooks; the first %d run", len(l.hooks), maxHooks), "remove some")
		l.hooks = l.hooks[:maxHooks]
	}
}

// eventLike reports whether a key among other settings is meant for an event, perhaps
// a misspelt one.
func eventLike(m jsonc.Member) bool {
	if _, _, ok := named(m.Key); ok {
		return true
	}
	var list []map[string]json.RawMessage
	return json.Unmarshal(m.Value, &list) == nil && len(list) > 0
}

// event finds an event that can be hooked.
func (l *loader) event(name string) (fact, bool) {
	f, _, ok := named(name)
	switch {
	case !ok && nearest(name) != "":
		l.problem(name, "it is not an event", "write "+nearest(name))
	case !ok:
		l.problem(name, "it is not an event, and its hooks never run", "see docs/hooks.md for the events")
	case f.is(silent):
		l.problem(name, "the event is known, but Drover does not send it: its hooks never run", "use another event")
		ok = false
	}
	return f, ok
}

// list reads the hooks of one event.
func (l *loader) list(name string, raw json.RawMessage) {
	f, ok := l.event(name)
	if !ok {
		return
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		l.problem(name, "it is not a list", "write [{\"hooks\": [{\"type\": \"command\", \"command\": \"…\"}]}]")
		return
	}
	for _, item := range items {
		l.item(f, name, item)
	}
}

// item is a group of hooks with a matcher, or a hook by itself.
func (l *loader) item(f fact, name string, raw json.RawMessage) {
	o, ok := l.object(name, raw)
	if !ok {
		return
	}
	if _, group := o["hooks"]; !group {
		l.entry(f, name, o.text(l, name, "matcher"), o)
		return
	}
	l.unknown(name, o, "matcher", "hooks", "description")
	var inner []json.RawMessage
	if json.Unmarshal(o["hooks"], &inner) != nil {
		l.problem(name, "hooks is not a list", movedAway)
		return
	}
	match := o.text(l, name, "matcher")
	for _, raw := range inner {
		if e, ok := l.object(name, raw); ok {
			l.entry(f, name, match, e)
		}
	}
}

// entry reads one hook.
func (l *loader) entry(f fact, name, match string, o object) {
	switch kind := o.text(l, name, "type"); kind {
	case "command", "":
	case "http", "prompt", "agent", "mcp_tool":
		l.problem(name, "hooks of type "+kind+" are not supported: it never runs", "use type command")
		return
	default:
		l.problem(name, fmt.Sprintf("%.60q is not a type of hook: it never runs", kind), "use type command")
		return
	}
	l.unknown(name, o, "type", "command", "timeout", "async", "matcher", "bash", "powershell", "cwd", "env", "timeoutSec",
		"description", "comment", "statusMessage")
	h := l.hook(f, name, match)
	if h.command = o.text(l, name, "bash"); h.command == "" {
		h.command = o.text(l, name, "command")
	}
	switch {
	case strings.ContainsRune(h.command, 0):
		l.problem(name, "its command holds a NUL byte: it never runs", movedAway)
		return
	case strings.TrimSpace(h.command) == "":
		l.problem(name, "it has no command: it never runs", "add \"command\": \"…\"")
		return
	}
	h.dir, h.env, h.timeout = o.text(l, name, "cwd"), l.env(name, o), l.timeout(name, o)
	h.async = string(o["async"]) == "true"
	l.hooks = append(l.hooks, h)
}

// hook returns a hook of the source, still without its command or callback.
func (l *loader) hook(f fact, name, match string) hook {
	m, err := newMatcher(match)
	switch {
	case err != nil && f.is(guards):
		l.problem(name, fmt.Sprintf("its matcher %.80q cannot be read (%v): it runs for everything", match, err),
			"correct it")
	case err != nil:
		l.problem(name, fmt.Sprintf("its matcher %.80q cannot be read (%v): it never runs", match, err), "correct it")
		m.never = true
	case f.about == nil && !m.all():
		l.problem(name, "there is nothing to match here: it always runs", "remove its matcher")
		m = matcher{text: match}
	case slices.Equal(f.about, []string{"tool_name"}) && ruleLike(match):
		l.problem(name,
			fmt.Sprintf("its matcher %.80q looks like a permission rule, and is compared with names of tools", match),
			"name the tool only")
	}
	_, camel, _ := named(name)
	says := name
	if l.src.Agent && f.event == Stop {
		f, m, says = factOf(SubagentStop), matcher{}, string(SubagentStop)
		if camel {
			says = lowerFirst(says)
		}
	}
	return hook{
		fact:    f,
		name:    name,
		says:    says,
		camel:   camel,
		copilot: l.copilot,
		matcher: m,
		source:  l.src.Path,
		runs:    l.src.Trusted || l.src.User,
		bounded: l.src.Bounded,
	}
}

// ruleLike reports whether a matcher is a rule such as Bash(git *).
func ruleLike(match string) bool {
	i := strings.IndexByte(match, '(')
	return i > 0 && strings.HasSuffix(match, ")") &&
		strings.Trim(match[:i], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") == ""
}

func (l *loader) timeout(name string, o object) time.Duration {
	raw, ok := o["timeout"]
	if !ok {
		raw, ok = o["timeoutSec"]
	}
	if !ok {
		return defaultTimeout
	}
	var seconds float64
	switch err := json.Unmarshal(raw, &seconds); {
	case err != nil || !(seconds > 0):
		l.problem(name, "its timeout "+short(raw)+" is not a number of seconds: 60 holds", "write a number above 0")
		return defaultTimeout
	case seconds > maxTimeout.Seconds():
		l.problem(name, "its timeout "+short(raw)+" is above 600 seconds: 600 holds", "write at most 600")
		return maxTimeout
	}
	return max(time.Duration(seconds*float64(time.Second)), time.Millisecond)
}

func (l *loader) env(name string, o object) []string {
	raw, ok := o["env"]
	if !ok {
		return nil
	}
	var vars map[string]string
	if err := json.Unmarshal(raw, &vars); err != nil {
		l.problem(name, "its env is not an object of texts, and is ignored", movedAway)
		return nil
	}
	var out []string
	for key, value := range vars {
		if key == "" || strings.HasPrefix(key, "DROVER_") || strings.ContainsAny(key, "=\x00") ||
			strings.ContainsRune(value, 0) {
			l.problem(name, fmt.Sprintf("the variable %.60q of its env cannot be set", key), "use another name")
			continue
		}
		out = append(out, key+"="+value)
	}
	slices.Sort(out)
	return out
}

// unknown reports keys without a meaning.
func (l *loader) unknown(name string, o object, known ...string) {
	for _, key := range o.keys() {
		if !slices.Contains(known, key) {
			l.problem(name, fmt.Sprintf("%.60q is not known, and is ignored", key), "remove it, or see docs/hooks.md")
		}
	}
}

// object is a JSON object of a source.
type object map[string]json.RawMessage

func (l *loader) object(name string, raw json.RawMessage) (object, bool) {
	list, err := jsonc.Members(raw)
	if err != nil {
		l.problem(name, "an entry is not an object: it never runs", movedAway)
		return nil, false
	}
	o := object{}
	for _, m := range list {
		if _, twice := o[m.Key]; twice {
			l.problem(name, fmt.Sprintf("%.60q is given twice: the last one holds", m.Key), "remove one")
		}
		o[m.Key] = m.Value
	}
	return o, true
}

func (o object) keys() []string {
	out := make([]string, 0, len(o))
	for key := range o {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

func (o object) text(l *loader, name, key string) string {
	raw, ok := o[key]
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		l.problem(name, key+" is not a text, and is ignored", movedAway)
	}
	return s
}

func short(raw json.RawMessage) string { return fmt.Sprintf("%.40s", raw) }
