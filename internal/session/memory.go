package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/dreams"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/upkeep"
	"github.com/drover-dev/drover/task"
)

// newDreams makes the dreams of the session.
func (s *Session) newDreams() *dreams.Dreams {
	a := s.cfg.Agents
	return dreams.New(
		dreams.Config{
			Store:   a.Memory,
			Tasks:   s.sup,
			Pool:    agents.Pool,
			Budgets: s.budgets,
			Place:   s.cfg.Place,
			Rules:   a.Rules,
			Gate:    environment.Gates{Foreign: a.Foreign, Report: s.report}.New,
			Updated: s.remembered,
			Wish:    s.cfg.Options.Memory.Model,
			Window:  a.Window,
			Share:   s.cfg.Options.Context.Share,
			Version: s.cfg.Info.Version,
			Sync:    s.cfg.Options.Power(),
			Driver: func(c dream.Config, in dream.Input) (task.Driver, json.RawMessage) {
				w := s.kinds.Dream(c, in)
				return w.Driver, w.Input
			},
			Choose: func(wish, cheap string) (string, error) {
				choice, err := s.agents.ChooseModel(dreams.Type, wish, cheap)
				return choice.Name, err
			},
			Model: func(name string) (agent.Model, string, error) {
				choice, err := a.Models.Find(name, home.Lookup(a.Env), cmp.Or(a.Rules.Base, s.cfg.Info.Project))
				return choice.Model, choice.Name, err
			},
		},
	)
}

// remembered reports the result of a dream to the user, also in the transcript of the main
// agent as a line that the agent does not read.
func (s *Session) remembered(changed []string) {
	text := "memory was looked through, and nothing had to be changed"
	if len(changed) > 0 {
		text = "memory was updated: " + strings.Join(changed, ", ")
	}
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil {
		if err := m.transcript.Append(agent.Record{Note: text}); err != nil {
			text += fmt.Sprintf(" (the transcript does not hold this: %v)", err)
		}
	}
	s.report.Say(s.cfg.Info.Session, text)
}

// dreamTimer starts dreams in idle time.
func (s *Session) dreamTimer() *upkeep.Dreams {
	m := s.cfg.Options.Memory
	return &upkeep.Dreams{Memory: s.cfg.Agents.Memory, Idle: m.IdleAfter,
		Rule: memory.Rule{Every: m.Every, Sessions: m.Sessions}, State: s.State,
		Worked: s.dreams.Worked,
		Start: func(ctx context.Context) error {
			_, err := s.dreams.Start(ctx, dream.Idle, task.Spec{})
			return err
		}}
}
