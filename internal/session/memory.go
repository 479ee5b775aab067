package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/memory"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/internal/session/upkeep"
	"github.com/drover-dev/drover/internal/tool/boardtool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Memory is what a session remembers, and when it dreams.
type Memory struct {
	Store *memory.Store // nil: nothing is remembered
	Model string        // of dreams; empty: a cheap one, or that of the session

	Auto bool          // the session dreams by itself, when it has been idle
	Idle time.Duration // for so long
	Rule memory.Rule   // and this says that it is due

	AtEnd    bool // a conversation that ends has its learnings consolidated; see [Session.Parting]
	MinTurns int  // prompts that it must have had for that
}

// newDreams makes the dreams of the session.
func (s *Session) newDreams() *dreams.Dreams {
	a := s.cfg.Agents
	me := caller{s: s, cwd: s.cfg.Info.Project, env: a.Env, model: a.Model}
	return dreams.New(
		dreams.Config{
			Store:   a.Memory.Store,
			Tasks:   s.sup,
			Pool:    agentPool,
			Budgets: s.budgets,
			Place:   s.cfg.Place,
			Rules:   a.Rules,
			Gate:    s.gate,
			Updated: s.remembered,
			Wish:    a.Memory.Model,
			Window:  a.Window,
			Share:   a.Share,
			Version: s.cfg.Info.Version,
			Sync:    s.cfg.Power,
			Driver: func(c dream.Config, in dream.Input) (task.Driver, json.RawMessage) {
				w := s.kinds.Dream(c, in)
				return w.Driver, w.Input
			},
			Choose: func(wish, cheap string) (string, error) {
				choice, err := s.choose(me, subagent.Input{Model: wish}, subagent.Definition{Name: dreams.Type, Model: cheap})
				return choice.Name, err
			},
			Model: func(name string) (agent.Model, string, error) {
				choice, err := a.Models.Find(name, home.Lookup(me.env), me.origin())
				return choice.Model, choice.Name, err
			},
		},
	)
}

// requestDream starts one for a client.
func (s *Session) requestDream(ctx context.Context, r control.StartRequest, spec task.Spec) (task.Record, error) {
	switch {
	case r.Keep:
		return task.Record{}, &control.Error{
			Code:    control.Invalid,
			Message: "a dream cannot be kept past its host",
			Fix:     "start another one later",
		}
	case r.Lease != "":
		return task.Record{}, &control.Error{
			Code:    control.Invalid,
			Message: "a dream belongs to no client, and takes no lease",
		}
	}
	return s.dreams.Start(
		ctx,
		dream.Manual,
		task.Spec{Name: spec.Name, Description: spec.Description, Timeout: spec.Timeout},
	)
}

// remembered tells the user what a dream has done, in the transcript of the main
// agent too, where the agent itself does not read it.
func (s *Session) remembered(changed []string) {
	text := "memory was looked through, and nothing had to be changed"
	if len(changed) > 0 {
		text = "memory was updated: " + strings.Join(changed, ", ")
	}
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil {
		if err := m.environment.cfg.Transcript.Append(agent.Record{Note: text}); err != nil {
			text += fmt.Sprintf(" (the transcript does not hold this: %v)", err)
		}
	}
	s.say(s.cfg.Info.Session, text)
}

// recoverMemory puts right what a host that died within a dream has left.
func (s *Session) recoverMemory() {
	if store := s.cfg.Agents.Memory.Store; store != nil {
		if err := store.Recover(); err != nil {
			s.say(s.cfg.Info.Session, err.Error())
		}
	}
}

// dreamTimer begins dreams in idle time.
func (s *Session) dreamTimer() *upkeep.Dreams {
	m := s.cfg.Agents.Memory
	return &upkeep.Dreams{Memory: m.Store, Idle: m.Idle, Rule: m.Rule, State: s.State,
		Worked: s.dreams.Worked,
		Start: func(ctx context.Context) error {
			_, err := s.dreams.Start(ctx, dream.Idle, task.Spec{})
			return err
		}}
}

// dirs are folders that agents may read because memory is in them.
func (m Memory) dirs() []string {
	if m.Store == nil {
		return nil
	}
	return []string{m.Store.Dir()}
}

// board is the tool of an agent that looks after the board: one whose definition
// names it.
func (k *agentEnvironment) board() []agent.Tool {
	store := k.me.s.cfg.Agents.Memory.Store
	if store == nil || !slices.Contains(k.me.tools, boardtool.Name) {
		return nil
	}
	return []agent.Tool{boardtool.New(boardtool.Config{Store: store, By: (&runtime{caller: k.me}).name()})}
}
