package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/sandboxes"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// base returns the fields common to all hook inputs of the agent.
func (k *Environment) base(tools []agent.Tool, transcript string) hook.Base {
	me, s := k.Me, k.s
	b := hook.Base{
		SessionID:      string(s.Info.Session),
		TranscriptPath: s.Place.Transcript(),
		Cwd:            me.here(),
		Project:        s.Info.Project,
		PermissionMode: func() string { return string(cmp.Or(me.Mode(), policy.Default)) },
		Effort:         k.effort,
		Model:          me.Model,
		Env:            me.Env,
		Tools:          tools,
		Spill:          s.HookOutput,
	}
	if me.Depth > 0 {
		b.AgentID, b.AgentType, b.AgentTranscript = string(me.ID), k.def.Name, transcript
		b.DisplayName, b.Description = cmp.Or(k.def.DisplayName, k.def.Name), k.def.Description
	}
	if s.keeper != nil {
		b.Ready = s.keeper.Ready
	}
	b.Bound = func(command string) (process.Bounds, error) {
		// Hosts are not asked about: a question runs hooks itself, and hooks have little time.
		start, err := s.sandboxes.Command(sandboxes.Wish{
			Folders: me.folders(), Line: command, Name: hook.Outside + command, Mode: me.sandbox, Reach: k.listed,
		})
		if err != nil || start.Fork == nil {
			return nil, err
		}
		return start, nil
	}
	b.Tell = func(e hook.Event, text string) { s.Report.Say(me.ID, fmt.Sprintf("hook %s: %s", e, text)) }
	b.Fault = s.Report.Once
	if on := s.cfg.OnHook; on != nil {
		b.Watch = func(r hook.Ran) { on(me.ID, r) }
	}
	return b
}

// Notify runs the notification hooks of the user for an event without an agent, and waits for them.
func (s *Set) Notify(ctx context.Context, kind, title, text string) {
	k := &Environment{s: s, Me: s.Client(s.Info.Project, s.cfg.Env, nil)}
	r := hook.NewRunner(s.hooksOf(subagent.Definition{}), k.base(nil, ""))
	defer r.Close()
	r.Notify(ctx, kind, title, text)
}

// effort is how much the agent is asked to think now; empty: not chosen.
func (k *Environment) effort() string {
	if live := k.Me.live; live != nil {
		live.mu.Lock()
		defer live.mu.Unlock()
		if live.thinking != nil {
			return live.thinking.Effort
		}
	}
	return cmp.Or(k.Config.Thinking.Effort, k.def.Effort)
}

// HookOutput creates the file for a hook that prints too much for memory. It counts as an
// output file.
func (s *Set) HookOutput(limit int64) (hook.Overflow, error) {
	s.spills.Lock()
	defer s.spills.Unlock()
	path, err := s.Place.NewHookOutput()
	if err != nil {
		return nil, err
	}
	return spool.Reopen(path, spool.Options{Limit: limit, Below: s.Place.Below(), Take: s.space.Take})
}

// hooksOf returns the hooks of the session and of an agent's definition.
func (s *Set) hooksOf(def subagent.Definition) *hook.Set {
	set := s.cfg.Hooks
	if set == nil {
		set, _ = hook.Load(nil)
	}
	if len(def.Hooks) == 0 {
		return set
	}
	data, err := json.Marshal(map[string]any{"hooks": def.Hooks})
	if err != nil {
		return set
	}
	own, problems := hook.Load([]hook.Source{{Path: "agent " + def.Name, Data: data, Trusted: true, Agent: true,
		Bounded: s.servers.OfProject(def)}})
	for _, p := range problems {
		s.Report.Say(s.Info.Session, p.String())
	}
	return set.Join(own)
}

// background returns the running tasks in the input of a stop hook.
func (k *Environment) background() []hook.Background {
	words := map[task.Work]string{task.ByCommand: "shell", task.ByEvents: "monitor", task.BySteps: "workflow"}
	var out []hook.Background
	for _, r := range k.s.Background(k.Me.ID, k.Me.Depth == 0) {
		out = append(out, hook.Background{
			ID:          string(r.ID),
			Type:        cmp.Or(words[r.Traits().Work], "subagent"),
			Status:      string(r.Status),
			Description: r.Description,
			Command:     r.Command,
			AgentType:   r.AgentType,
			Name:        r.Name,
		})
	}
	return out
}

// judge is the permission rules as hooks see them.
type judge struct{ *Environment }

// Judge implements [hook.Rules].
func (j judge) Judge(c agent.Call, word hook.Word) hook.Ruling {
	gate := j.GateOf(c)
	v := gate.Decide(c)
	_ = failpoint.Hit("call/judged")
	if word == hook.Allow {
		v = gate.Grant(c)
	}
	if word == hook.Ask && v.Decision == policy.Allow {
		return hook.Ruling{Word: hook.Ask, Reason: "a hook wants it to be asked about"}
	}
	return hook.Ruling{Word: hook.Word(v.Decision), Reason: v.Reason, Suggest: v.Suggest}
}

// Question implements [hook.Rules].
func (j judge) Question(ctx context.Context, c agent.Call, r hook.Ruling) (agent.Decision, error) {
	return j.Gate().Ask(ctx, c, policy.Verdict{Decision: policy.Ask, Reason: r.Reason, Suggest: r.Suggest})
}

// todoHooks lets hooks refuse changes of to-dos.
type todoHooks struct{ *Environment }

func (h todoHooks) Created(ctx context.Context, it todo.Item) error {
	return h.Runner.TaskCreated(ctx, h.todo(it))
}

func (h todoHooks) Completed(ctx context.Context, it todo.Item) error {
	return h.Runner.TaskCompleted(ctx, h.todo(it))
}

func (h todoHooks) todo(it todo.Item) hook.Todo {
	t := hook.Todo{ID: fmt.Sprint(int(it.ID)), Subject: it.Subject, Description: it.Description, Teammate: it.Owner}
	if name, team, ok := lifecycle.SplitTeam(it.Owner); ok {
		t.Teammate, t.Team = name, team
	}
	return t
}
