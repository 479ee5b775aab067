package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/process"
)

const (
	// Depth is the variable that counts hooks in hooks: of a program that a hook
	// has started. From maxDepth on none runs.
	Depth    = "DROVER_HOOK_DEPTH"
	maxDepth = 3

	sideBySide = 8  // hooks of one event
	maxAsync   = 16 // hooks in the background; more are waited for
)

// Base is the input common to all hooks of one agent, and the way in which they run.
type Base struct {
	SessionID      string
	TranscriptPath string
	Cwd            string        // absolute; where hooks run
	Project        string        // absolute; the folder that is worked on; empty: Cwd
	PermissionMode func() string // asked by several goroutines; nil: it is not told
	Effort         func() string // as PermissionMode
	Model          string        // empty: not told

	// Of a subagent; all empty for the main agent.
	AgentID, AgentType, DisplayName, Description, AgentTranscript string

	// Env is the environment of the asking client. Hooks do not get keys of providers
	// and variables that begin with DROVER_.
	Env   []string
	Tools []agent.Tool // the agent's own, for their aliases

	// Ready returns when somebody would end hooks if this process died, and is
	// asked before each. nil: hooks would outlive this process.
	Ready func() error
	// Bound returns the bounds of the command of a hook of a project; nil: it has none. An error
	// is a hook that cannot be started. nil func: no hook has bounds.
	Bound func(command string) (process.Bounds, error)
	// Spill makes a file of at most limit bytes for output of a hook that is too long for
	// the memory. It is called by several goroutines. nil: the excess is dropped.
	Spill func(limit int64) (Overflow, error)
	// Tell is given what the user should read, by several goroutines. nil: it is
	// lost, except for [Outcome.UserNotes].
	Tell func(e Event, text string)
	// Fault is given the faults of a hook's answer, which the user should read once.
	// It is called as Tell, with the same text again.
	Fault func(text string)
	// Watch, if not nil, is called for each hook when it begins and when it has ended, by
	// several goroutines.
	Watch func(Ran)
}

// Overflow is a file that holds all that a hook has printed to one stream, or the
// beginning of it.
type Overflow interface {
	io.WriteCloser
	Path() string
	Dropped() int64 // how many of the bytes it was given it has not kept
}

// Runner runs the hooks of one agent. Its methods may be called by several
// goroutines. The caller must [Runner.Close] it.
type Runner struct {
	set   *Set
	base  Base
	env   []string
	depth int
	tools []toolNames
	table process.Table
	self  process.Self
	now   func() time.Time

	life context.Context // of hooks in the background
	end  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool           // guarded by mu
	ran    int            // hooks that were watched; guarded by mu
	asked  string         // the ID of the prompt that is answered; guarded by mu
	async  int            // hooks in the background; guarded by mu
	jobs   sync.WaitGroup // one per hook that runs; Add under mu while not closed; Close waits
}

type toolNames struct {
	name    string
	aliases []string
}

// NewRunner makes a runner. It does no I/O.
func NewRunner(set *Set, base Base) *Runner {
	r := &Runner{set: set, base: base, depth: depthOf(base.Env), now: time.Now}
	r.life, r.end = context.WithCancelCause(context.Background())
	for _, t := range base.Tools {
		n := toolNames{name: t.Spec().Name}
		if a, ok := t.(agent.Aliased); ok {
			n.aliases = a.Aliases()
		}
		r.tools = append(r.tools, n)
	}
	project := cmp.Or(base.Project, base.Cwd)
	r.env = append(process.ChildEnv(base.Env), "CLAUDE_PROJECT_DIR="+project, "DROVER_PROJECT_DIR="+project,
		Depth+"="+strconv.Itoa(r.depth+1), process.MarkSession+"="+base.SessionID)
	return r
}

// depthOf reads how deep in hooks this process was started. What cannot be read
// counts as too deep.
func depthOf(env []string) int {
	depth := 0
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, Depth+"="); ok {
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 {
				n = maxDepth
			}
			depth = n
		}
	}
	return depth
}

// Close ends the hooks that run in the background, and returns when all hooks
// have ended. After it none runs: calls that a hook could deny are denied.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end(errClosed)
	r.jobs.Wait()
}

var (
	errInterrupted = errors.New("was interrupted") // the caller went away, and knows it
	errNoTime      = errors.New("did not answer in the time that was left, and was ended")
	errClosed      = errors.New("was not run to its end: the session closes")
)

// Run tells the hooks of an event, and returns what they say when all have ended
// or were let go into the background. It takes as long as the longest timeout.
// When ctx ends, the hooks are ended too. The names of fields are in snake_case.
func (r *Runner) Run(ctx context.Context, e Event, fields map[string]any) Outcome {
	hooks := r.chosen(e, fields)
	if len(hooks) == 0 {
		return Outcome{}
	}
	all := make([]Outcome, len(hooks))
	slots := make(chan struct{}, sideBySide)
	var group sync.WaitGroup
	for i, h := range hooks {
		slots <- struct{}{} // freed by hooks that end in any case
		group.Go(func() {
			defer func() { <-slots }()
			ended := r.watched(h, e, fields)
			res := r.one(ctx, h, fields)
			ended(res)
			all[i] = judge(h, res)
			if name, ok := fields["tool_name"].(string); ok && h.camel && all[i].UpdatedInput != nil {
				all[i].UpdatedInput = fromCopilot(name, all[i].UpdatedInput)
			}
		})
	}
	group.Wait()
	out := merge(all)
	for _, note := range out.UserNotes {
		if r.base.Tell != nil {
			r.base.Tell(e, note)
		}
	}
	for _, text := range out.faults {
		if r.base.Fault != nil {
			r.base.Fault(text)
		}
	}
	return out
}

// chosen are the hooks to run, each once, in their order.
func (r *Runner) chosen(e Event, fields map[string]any) []hook {
	var out []hook
	for _, h := range r.set.hooks {
		if !h.runs || h.fact.event != e || !h.matcher.matches(r.subjects(h, fields)) {
			continue
		}
		if !slices.ContainsFunc(out, h.same) {
			out = append(out, h)
		}
	}
	return out
}

// same reports whether two hooks would do the same.
func (h hook) same(o hook) bool {
	return h.call == nil && o.call == nil && h.command == o.command && h.says == o.says && h.copilot == o.copilot &&
		h.dir == o.dir && h.bounded == o.bounded &&
		slices.Equal(h.env, o.env)
}

// one runs a hook.
func (r *Runner) one(ctx context.Context, h hook, fields map[string]any) result {
	if r.depth >= maxDepth {
		return result{
			err: fmt.Errorf("was not run: it is %d hooks deep, and %d is the limit (a hook must not start what starts it again)",
				r.depth, maxDepth),
		}
	}
	payload, err := r.payload(h, fields, r.now())
	if err != nil {
		return result{err: fmt.Errorf("could not be told: %w", err)}
	}
	j := &job{r: r, h: h, payload: payload, done: make(chan struct{}), gone: make(chan struct{})}
	j.ctx, j.cancel = context.WithCancelCause(r.life)
	stop := context.AfterFunc(ctx, func() { j.cancel(leaving(ctx)) })
	if !r.begin(j) {
		stop()
		j.cancel(nil)
		return result{err: errClosed}
	}
	select {
	case <-j.done:
	case <-j.gone:
	}
	stop() // only its time limit and the runner end a hook in the background
	select {
	case <-j.gone:
		return result{async: true}
	default:
		return j.result
	}
}

// leaving is why the caller of a hook went away.
func leaving(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return errNoTime
	}
	return errInterrupted
}

// begin starts the goroutine of a job, unless the runner is closed.
func (r *Runner) begin(j *job) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.jobs.Go(j.run)
	return true
}

// prompt returns the ID of the prompt that is answered; empty: none is known.
func (r *Runner) prompt() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// begins notes a new prompt.
func (r *Runner) begins(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = id
}

// release lets a job go on in the background, if there is a place.
func (r *Runner) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.async >= maxAsync {
		return false
	}
	r.async++
	return true
}

func (r *Runner) returned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.async--
}

// dir is where a hook runs.
func (r *Runner) dir(h hook) string {
	if filepath.IsAbs(h.dir) {
		return h.dir
	}
	return filepath.Join(r.base.Cwd, h.dir)
}

// toolFields returns the fields of every event about a call.
func (r *Runner) toolFields(c agent.Call) map[string]any {
	name := r.canonical(c.Name)
	out := map[string]any{"tool_name": name, "tool_input": input(c.Input), "tool_use_id": c.ID}
	if rest, ok := strings.CutPrefix(name, "mcp__"); ok {
		out["mcp_server"], _, _ = strings.Cut(rest, "__")
	}
	return out
}
