package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/permission"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// What a session is for; see [control.Info].
const (
	RoleBackground = control.RoleBackground
	RoleRun        = control.RoleRun
	RolePrompt     = control.RolePrompt
)

// TaskOrigin is the origin of a turn that mail has started.
const TaskOrigin = "task-notification"

// Errors of a main agent.
var (
	// ErrInterrupted is the cause of a turn that the user broke off.
	ErrInterrupted = errors.New("interrupted by the user")
	// ErrCeiling is returned by [Main.Settle] when commands were still running
	// at the wait ceiling, and were stopped.
	ErrCeiling = errors.New("background commands were still running at the wait ceiling")
)

// MainConfig is what a main agent is made of.
type MainConfig struct {
	Agent        string   // a sort of agent of the catalog; empty: the main agent
	Model        string   // empty: the session's
	System       string   // instead of the usual system prompt
	AppendSystem string   // behind it
	MaxTurns     int      // model replies for one prompt; 0: 50
	Tools        []string // names; nil: all
	Autopilot    bool     // it is reminded to go on until it calls task_complete
	Reminders    int      // of the autopilot, for one prompt; 0: 5

	// Begin and Done are told of every turn, in order, on the main agent's
	// goroutine.
	Begin func(origin string)
	Done  func(Turn)
}

// Turn is one turn of a main agent that has ended.
type Turn struct {
	Origin string // empty for a prompt, else [TaskOrigin] or [AutopilotOrigin]
	Result agent.TurnResult
	Err    error
}

// Main is the main agent of a session: its mail, prompts among it, and one
// conversation that answers it. Each prompt has a turn of its own, in order, which
// begins with what other mail there is. A prompt that no turn has begun with when
// its run or its host ended stays unread, and is told with the next prompt.
type Main struct {
	s      *Session
	cfg    MainConfig
	kit    *kit
	auto   *autopilot // nil: none
	loop   *agent.Loop
	box    *mailbox.Box
	shut   func() error // closes the transcript
	source string       // startup or resume, until hooks have been told
	began  string       // what they said then, until a turn has it

	wanted string   // the model, as a finder takes it
	model  string   // as the user is shown it
	tools  []string // names
	listen atomic.Pointer[subagent.Watcher]

	order   sync.Mutex // held while a prompt is written down: they come in the order of their numbers
	mu      sync.Mutex
	posting int      // prompts that are being written down
	stale   task.Seq // the newest prompt that begins no further turn; later ones are the queue
	begun   task.Seq // the newest prompt that has begun a turn
	asking  task.Seq // the prompt that the turn is about; 0: mail
	busy    bool
	latched bool // mail waits for the user: the last turn failed or was broken off
	broken  bool // the user has broken off the work on the last prompt
	cancel  context.CancelCauseFunc
	rested  time.Time // end of the last turn
	turned  int       // turns that have ended
	last    Turn      // that ended
	changed chan struct{}
	ended   bool
	over    bool // its task has ended: nobody would answer a further prompt

	hosted   bool          // a prompt that comes then begins a further run
	ceiling  time.Duration // of such a run
	attended bool          // somebody was attached in this run
	door     sync.Mutex    // held while it is begun; no lock is held around it

	prompted atomic.Int64 // prompts of the user that were given to the model
	atEnd    atomic.Bool  // what the conversation teaches is consolidated at its end
}

// OpenMain puts the main agent together, with the conversation that the session
// has had so far. There is one per session.
func (s *Session) OpenMain(ctx context.Context, cfg MainConfig) (*Main, error) {
	me := self{s: s, id: s.cfg.Info.Session, cwd: s.cfg.Info.Project, env: s.cfg.Agents.Env, rules: s.cfg.Agents.Rules,
		tools: cfg.Tools, maxTurns: cfg.MaxTurns}
	def, err := s.mainDefinition(cfg)
	if err != nil {
		return nil, err
	}
	def.Tools, me.spawns = environment.Spawnable(def.Tools)
	me.tools = environment.Subset(me.tools, def.Tools, def.DisallowedTools, environment.ToolNames(s.cfg.Agents.Tools)...)
	me.barred, me.own = environment.Bar(nil, def.DisallowedTools), s.ownServers(def, me)
	me.rules.Mode = environment.Narrower(me.rules.Mode, permission.Mode(def.PermissionMode))
	if me.maxTurns == 0 {
		me.maxTurns = def.MaxTurns
	}
	me.model = s.cfg.Agents.Model
	choice, err := s.choose(me, subagent.Input{Model: cfg.Model}, def)
	if err != nil {
		return nil, err
	}
	s.say(me.id, choice.Notes...)
	me.model = choice.Name
	k, err := s.kit(me, def, s.cfg.Place.Transcript())
	if err != nil {
		return nil, err
	}
	m := &Main{s: s, cfg: cfg, kit: k, wanted: choice.Name, model: k.cfg.ModelName, changed: make(chan struct{})}
	m.atEnd.Store(s.cfg.Agents.Memory.AtEnd)
	if cfg.Autopilot {
		m.auto, err = k.autopilot(cfg.Reminders)
	}
	if err == nil {
		err = m.open(ctx)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.main = m
	s.pulse.moved()
	return m, nil
}

// open opens the conversation.
func (m *Main) open(ctx context.Context) error {
	s, conv := m.s, &m.kit.cfg
	t, history, err := agent.OpenTranscript(s.cfg.Place.Transcript(), agent.Meta{Version: s.cfg.Info.Version, Cwd: m.kit.me.cwd, AgentName: mainName,
		SessionID: string(s.cfg.Info.Session), Sync: s.cfg.Power})
	if err != nil {
		return err
	}
	if m.box, err = s.box(ctx, m.kit.me.id); err != nil {
		return errors.Join(err, t.Close())
	}
	m.shut = t.Close
	conv.Transcript, conv.Mail = t, &mail{s: s, box: m.box, skip: m.queued}
	next := conv.On
	conv.On = func(e agent.Event) { m.on(e, next) }
	s.activity.Begin(m.kit.me.id, "", false).Follow(conv)
	for _, tool := range conv.Tools {
		m.tools = append(m.tools, tool.Spec().Name)
	}
	if m.loop, err = agent.NewLoop(*conv, history.Messages); err != nil {
		return errors.Join(err, t.Close())
	}
	s.feed.seed(history.Messages)
	m.stale = m.keepPrompts()
	m.source = "startup"
	if m.kit.resumed = len(history.Messages) > 0; m.kit.resumed {
		m.source = "resume"
	}
	return nil
}

// mainDefinition is the main agent, or a sort of agent in its place.
func (s *Session) mainDefinition(cfg MainConfig) (subagent.Definition, error) {
	def := subagent.Definition{Name: mainName, Prompt: mainPrompt}
	if cfg.Agent != "" {
		named, err := s.cfg.Agents.Catalog().Find(cfg.Agent)
		if err != nil {
			return def, err
		}
		named.Name = mainName
		def = named
	}
	if cfg.System != "" {
		def.Prompt = cfg.System
	}
	if cfg.AppendSystem != "" {
		def.Prompt += "\n\n" + cfg.AppendSystem
	}
	return def, nil
}

// say tells the user something about an agent.
func (s *Session) say(from task.ID, notes ...string) {
	for _, n := range notes {
		if s.cfg.Agents.Tell != nil {
			s.cfg.Agents.Tell(from, n)
		}
	}
}

// Prompt queues a prompt, and returns when it is durable.
func (m *Main) Prompt(ctx context.Context, text string) error {
	_, err := m.post(ctx, text)
	return err
}

// post is Prompt, and returns the number of the prompt.
func (m *Main) post(ctx context.Context, text string) (task.Seq, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return 0, &control.Error{Code: control.Invalid, Message: "the prompt is empty"}
	case len(text) > task.MaxPromptBytes:
		return 0, &control.Error{Code: control.Invalid, Message: fmt.Sprintf("the prompt is longer than %d MiB", task.MaxPromptBytes>>20), Mend: "put it in a file and name that"}
	}
	m.mu.Lock()
	err := m.shuts()
	if err == nil {
		m.posting++
	}
	m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	seq, err := m.write(ctx, text)
	if errors.Is(err, task.ErrMailFull) {
		err = &control.Error{Code: control.Unavailable, Message: err.Error(), Mend: "wait until some are answered"}
	}
	m.mu.Lock()
	m.posting--
	m.latched, m.broken = m.latched && err != nil, m.broken && err != nil
	gone := error(nil)
	if err == nil && m.passedBy(seq) {
		gone = m.shuts()
	}
	m.wake()
	m.mu.Unlock()
	if gone == nil {
		return seq, err
	}
	if err := m.withdraw(ctx, seq); err != nil { // the next host may tell of it
		return 0, err
	}
	return 0, gone
}

// write makes a prompt durable and puts it into the queue.
func (m *Main) write(ctx context.Context, text string) (task.Seq, error) {
	m.order.Lock()
	defer m.order.Unlock()
	return m.s.sup.Post(ctx, task.Message{To: m.kit.me.id, From: string(task.ByUser), Kind: task.Prompt, Text: strings.ToValidUTF8(text, "\uFFFD")})
}

// passedBy reports whether no run has taken a prompt, and none will. The caller holds mu.
func (m *Main) passedBy(prompt task.Seq) bool { return m.over && prompt > m.begun }

// shuts says why no prompt is taken. The caller holds mu.
func (m *Main) shuts() error {
	switch {
	case m.ended:
		return &control.Error{Code: control.Unavailable, Message: "the session is closing", Untaken: true}
	case m.over:
		return &control.Error{Code: control.Unavailable, Message: "the conversation has ended",
			Mend: fmt.Sprintf("go on with `drover -p --resume %s \"…\"`", m.kit.me.id), Untaken: true}
	}
	return nil
}

// withdraw puts away a prompt that is not to be told any more.
func (m *Main) withdraw(ctx context.Context, seq task.Seq) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lastHooks, task.ErrClosing)
	defer cancel()
	return m.box.Acknowledge(ctx, seq)
}

// queued reports whether mail is no matter of the turn that is running: a prompt
// that waits, or that very turn's.
func (m *Main) queued(x mailbox.Mail) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return x.Seq == m.asking || m.waits(x) || m.over && isPrompt(x) // who gave one is told that no run takes it
}

// waits reports whether mail is a prompt that begins a turn. The caller holds mu.
func (m *Main) waits(x mailbox.Mail) bool { return isPrompt(x) && x.Seq > m.stale }

func isPrompt(x mailbox.Mail) bool { return x.Message != nil && x.Message.Kind == task.Prompt }

// next is the prompt that begins the next turn. The caller holds mu.
func (m *Main) next() (prompt task.Message, ok bool) {
	mail := m.box.Mail()
	if i := slices.IndexFunc(mail, m.waits); i >= 0 {
		return *mail[i].Message, true
	}
	return prompt, false
}

// keepPrompts says of prompts that wait that they go with the next one, and returns
// the newest. The caller holds mu, or is alone.
func (m *Main) keepPrompts() task.Seq {
	newest := m.stale
	for _, x := range m.box.Mail() {
		if m.waits(x) {
			newest = x.Seq
			text, _ := short(strings.Join(strings.Fields(x.Message.Text), " "), 200)
			m.s.feed.add(control.Piece{Kind: control.NotePiece, Text: "not answered yet, goes with the next prompt: " + text})
		}
	}
	return newest
}

// Interrupt breaks off the turn that is running, if there is one. Mail then
// waits for the next prompt.
func (m *Main) Interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latched, m.broken = true, true
	m.auto.abort()
	if m.cancel != nil {
		m.cancel(ErrInterrupted)
	}
	m.wake() // whoever settles may be waiting for background work only
}

// wake frees those who wait for the state of the agent to change. The caller
// holds mu.
func (m *Main) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
	m.s.pulse.moved()
}

// Run answers prompts and mail until ctx ends.
func (m *Main) Run(ctx context.Context) {
	for ctx.Err() == nil {
		ended, grown := m.more()
		turn, cancel := context.WithCancelCause(ctx)
		prompt, origin, ok := m.take(cancel)
		if ok {
			m.turn(turn, prompt, origin)
		}
		cancel(nil)
		if ok {
			continue
		}
		select {
		case <-m.box.Added():
		case <-ended:
		case <-grown:
		case <-ctx.Done():
		}
	}
}

// take marks the agent as busy if there is something to answer, in a turn that
// interrupt breaks off.
func (m *Main) take(interrupt context.CancelCauseFunc) (prompt []agent.Block, origin string, ok bool) {
	alone := m.auto.due() && m.alone()
	owed := m.owed()
	m.mu.Lock()
	defer m.mu.Unlock()
	asked, isAsked := m.next()
	switch {
	case m.ended || m.over:
	case isAsked:
		m.stale, m.begun, m.asking = asked.Seq, asked.Seq, asked.Seq
		prompt, ok = texts(asked.Text), true
	case owed && !m.latched:
		origin, ok = TaskOrigin, true
	case alone && !m.latched && m.auto.due():
		prompt, origin, ok = m.auto.remind(), AutopilotOrigin, true
	}
	if m.busy = ok; ok {
		m.cancel = interrupt
		m.auto.begin(origin == "")
		m.s.pulse.moved()
	}
	return prompt, origin, ok
}

func (m *Main) turn(ctx context.Context, prompt []agent.Block, origin string) {
	if m.cfg.Begin != nil {
		m.cfg.Begin(origin)
	}
	m.s.feed.begin(prompt, origin)
	res, err := m.answer(ctx, prompt, origin)
	if err == nil {
		res = m.auto.ended(res)
	}
	m.s.feed.end(res, err)
	if m.cfg.Done != nil {
		m.cfg.Done(Turn{Origin: origin, Result: res, Err: err})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancel, m.busy, m.asking, m.rested = nil, false, 0, time.Now()
	m.turned++
	m.last = Turn{Origin: origin, Result: res, Err: err}
	if err != nil && !m.auto.survives(ctx, err) {
		m.latched = true
	}
	m.wake()
}

// answer lets hooks see a prompt before the model does.
func (m *Main) answer(ctx context.Context, prompt []agent.Block, origin string) (agent.TurnResult, error) {
	if m.source != "" {
		m.began = join([]string{m.kit.runner.SessionStart(ctx, m.source), m.kit.opening()})
		m.source = ""
	}
	said := ""
	if len(prompt) > 0 && origin == "" {
		if how, ok := compactCommand(prompt[0].Text); ok {
			return m.aside(ctx, func() (agent.TurnResult, error) { return m.compact(ctx, how) })
		}
		if word, ok := subconsciousCommand(prompt[0].Text); ok {
			answer, instead := m.subconscious(word)
			if instead == "" {
				return m.aside(ctx, func() (agent.TurnResult, error) {
					return agent.TurnResult{Reason: "end_turn", StopReason: "end_turn", Text: answer}, nil
				})
			}
			prompt = texts(instead)
		}
		m.prompted.Add(1)
		m.s.hops.worked(m.kit.me.id)
		var err error
		if said, err = m.kit.runner.UserPromptSubmit(ctx, prompt[0].Text); err != nil {
			return m.aside(ctx, func() (agent.TurnResult, error) { return agent.TurnResult{Reason: "blocked"}, &BlockedError{err} })
		}
	}
	before := append(texts(m.began), texts(said)...)
	m.began = ""
	res, err := m.loop.Answer(ctx, int64(m.about()), append(before, prompt...)...)
	var limit *agent.LimitError
	if err != nil && ctx.Err() == nil && !errors.As(err, &limit) {
		m.kit.runner.StopFailure(ctx, err, res.Text)
	}
	return res, err
}

// about is the prompt that the turn is about.
func (m *Main) about() task.Seq {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asking
}

// aside answers a prompt of which the model is not told.
func (m *Main) aside(ctx context.Context, answer func() (agent.TurnResult, error)) (agent.TurnResult, error) {
	res, err := answer()
	return res, errors.Join(err, m.withdraw(ctx, m.about()))
}

// compactCommand recognises the prompt that asks for a summary of the
// conversation, with what it should keep.
func compactCommand(prompt string) (instructions string, ok bool) {
	word, rest, _ := strings.Cut(strings.TrimSpace(prompt), " ")
	return strings.TrimSpace(rest), word == "/compact"
}

// compact makes the conversation shorter because the user wants it.
func (m *Main) compact(ctx context.Context, instructions string) (agent.TurnResult, error) {
	if err := m.loop.Compact(ctx, instructions); err != nil {
		return agent.TurnResult{Reason: "error"}, fmt.Errorf("sum up the conversation: %w", err)
	}
	return agent.TurnResult{Reason: "end_turn", StopReason: "end_turn", Text: "The conversation was summed up."}, nil
}

// BlockedError says that a hook did not let a prompt pass.
type BlockedError struct{ Err error }

func (e *BlockedError) Error() string { return "a hook blocked the prompt: " + e.Err.Error() }
func (e *BlockedError) Unwrap() error { return e.Err }

func texts(text string) []agent.Block {
	if text == "" {
		return nil
	}
	return []agent.Block{agent.TextBlock(text)}
}

// Model is the full name of the agent's model.
func (m *Main) Model() string { return m.model }

// Tools are the names of the agent's tools.
func (m *Main) Tools() []string { return m.tools }

// Last is the turn that ended last.
func (m *Main) Last() Turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Totals is what the conversation has used so far.
func (m *Main) Totals() agent.Totals { return m.loop.Totals() }

// Settle waits until nothing is left to answer or to wait for: no prompt, no
// turn, no mail, no agent, no command. Commands are waited for until the
// ceiling after the last answer; then they are stopped, and the receipt and
// [ErrCeiling] are returned. 0 means that nothing is waited for. Work is waited
// for behind a turn in which the model failed too, see [ModelFailed]; its notices
// then wait for the next prompt. It is not behind a turn that failed otherwise,
// or that the user broke off.
func (m *Main) Settle(ctx context.Context, ceiling time.Duration) (task.Receipt, error) {
	seen := -1
	for {
		// Work goes from a task by the mailbox to a turn, and is looked for in
		// this order, so that it cannot slip through between two looks.
		ends := m.s.Changed()
		commands, others := m.s.waitedFor()
		mail := m.owed()
		m.mu.Lock()
		changed, rested := m.changed, m.rested
		working := m.working()
		latched, turned, attended := m.latched, m.turned, m.attended
		over := latched && !attended && (m.broken || !ModelFailed(m.last.Err))
		m.mu.Unlock()
		owed := mail && !latched
		if turned != seen { // a turn that ended meanwhile may have started anything
			seen = turned
			continue
		}
		var late *time.Timer
		switch {
		case working || owed:
		case over || ceiling == 0 || len(commands) == 0 && others == 0:
			return task.Receipt{}, m.auto.unfinished()
		case others == 0:
			left := ceiling - time.Since(rested)
			if left <= 0 {
				return m.stopCommands(ctx, commands)
			}
			late = time.NewTimer(left)
		}
		if err := oneOf(ctx, changed, ends, late); err != nil {
			return task.Receipt{}, err
		}
	}
}

// ModelFailed reports whether a turn ended because the model could not be asked, or
// gave no whole answer: what it has started may still come to its end.
func ModelFailed(err error) bool {
	var failed *agent.ModelError
	var cut *agent.CutError
	var stopped *agent.StopError
	return errors.As(err, &failed) || errors.As(err, &cut) || errors.As(err, &stopped)
}

// Waited are the tasks that [Main.Settle] waits for now.
func (m *Main) Waited() (tasks []task.Record) {
	for _, r := range m.s.sup.List(0) {
		if m.s.isWaitedFor(r) {
			tasks = append(tasks, r)
		}
	}
	return tasks
}

// oneOf waits for any of its channels, or for the timer if there is one.
func oneOf(ctx context.Context, a, b <-chan struct{}, late *time.Timer) error {
	var c <-chan time.Time
	if late != nil {
		defer late.Stop()
		c = late.C
	}
	select {
	case <-a:
	case <-b:
	case <-c:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (m *Main) stopCommands(ctx context.Context, ids []task.ID) (task.Receipt, error) {
	// Their notices are for the next prompt: a turn that began now would be cut
	// off, and would take the place of the answer.
	m.mu.Lock()
	m.latched = true
	m.mu.Unlock()
	receipt, err := m.s.sup.Stop(ctx, ids, supervise.StopRequest{Cause: task.Cause{Actor: task.ByRuntime, Reason: task.ReasonClosing, Detail: "the wait ceiling was reached"}})
	return receipt, errors.Join(err, ErrCeiling)
}

// waitedFor returns the commands that are running, and how many other tasks are
// at work: an agent that rests has done what it was asked.
func (s *Session) waitedFor() (commands []task.ID, others int) {
	for _, r := range s.sup.List(0) {
		switch {
		case !s.isWaitedFor(r):
		case r.Traits().Work == task.ByCommand:
			commands = append(commands, r.ID)
		default:
			others++
		}
	}
	return commands, others
}

func (s *Session) isWaitedFor(r task.Record) bool {
	return r.WaitedFor() && !s.rests(r) && r.ID != s.cfg.Info.Session
}

// end takes no further prompt. What the turn still has to say is written until
// the transcript is shut.
func (m *Main) end() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
}

// lastHooks is how long hooks that hear of the session's end may take.
const lastHooks = 10 * time.Second

// close tells hooks of the end and closes the conversation.
func (m *Main) close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lastHooks, task.ErrClosing)
	defer cancel()
	m.kit.runner.SessionEnd(ctx, "other")
	m.kit.close()
	return m.shut()
}

// Definition returns the sort of agent that a name means.
func (s *Session) Definition(name string) (subagent.Definition, error) {
	return s.cfg.Agents.Catalog().Find(name)
}
