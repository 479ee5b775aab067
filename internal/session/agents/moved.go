package agents

import (
	"context"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// Renew makes the next environment of the main agent when a turn that is moved to the background
// takes k along: the same tools, rules and settings, without their state. The caller makes
// its gate, and closes it.
func (s *Set) Renew(ctx context.Context, k *Environment) (*Environment, error) {
	me := k.Me
	me.live = k.Me.live.copy()
	_, mode, _ := me.live.get()
	me.Rules.Mode = mode
	n, err := s.newEnvironment(ctx, me, k.def, s.Place.Transcript())
	if err != nil {
		return nil, err
	}
	n.Resumed = true
	n.Config.Thinking = k.Config.Thinking
	n.Granted.Set(k.Granted.allowed(), k.Granted.restricted())
	n.reminders.GoOn(k.reminders)
	n.used.GoOn(k.used)
	return n, nil
}

// ActAs makes the agent ask and pause as a task: its turn was moved to the background.
func (k *Environment) ActAs(h task.Host) { k.Me.live.moved.Store(&h) }

// Moved reports the events of a turn in the background, as those of task id.
func (k *Environment) Moved(id task.ID) func(agent.Event) {
	return func(e agent.Event) {
		k.edited(e)
		k.limits.On(e)
		if k.s.cfg.On != nil {
			k.s.cfg.On(id, e)
		}
	}
}
