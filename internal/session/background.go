package session

import (
	"context"
	"errors"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/tasks"
	"github.com/drover-dev/drover/task"
)

// Promote moves a foreground task to the background; of the main agent it moves the turn
// that is running, and returns the task that the turn becomes.
func (s *Session) Promote(ctx context.Context, ref string) (task.Record, error) {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	own := s.cfg.Info.Session
	if r, err := s.tree.Find(ref); m == nil || ref != string(own) && (err != nil || r.ID != own) {
		return s.Tasks.Promote(ctx, ref)
	}
	if s.cfg.Options.Tasks.DisableBackground {
		return task.Record{}, control.Refuse(control.Unavailable, "background work is turned off", "")
	}
	return m.background(ctx)
}

// background moves the turn that is running to the background. It takes along what the agent
// has, such as the folder that its commands work in; the conversation goes on with the same anew.
func (m *Main) background(ctx context.Context) (task.Record, error) {
	m.moving.Lock()
	defer m.moving.Unlock()
	if err := m.Movable(); err != nil {
		return task.Record{}, err
	}
	s, k := m.s, m.environment()
	next, err := s.agents.Renew(ctx, k)
	if err != nil {
		return task.Record{}, err
	}
	if err := next.MakeGate(append(slices.Clone(next.Config.Tools), m.auto.Tool())); err != nil {
		next.Close()
		return task.Record{}, err
	}
	rec, err := m.handOver(ctx, k, next)
	if err != nil {
		next.Close()
		return rec, err
	}
	m.now.Store(next)
	s.agents.SetMain(next)
	return rec, nil
}

// handOver lets the turn go on as a task with k, and the conversation with next.
func (m *Main) handOver(ctx context.Context, k, next *agents.Environment) (task.Record, error) {
	s, id := m.s, task.NewSessionID()
	own := s.cfg.Info.Session
	path := s.cfg.Place.AgentTranscript(id)
	box, err := s.mail.Open(ctx, id)
	if err != nil {
		return task.Record{}, err
	}
	follow := agent.Config{On: k.Moved(id), WaitWhilePaused: func(context.Context) error { return nil }}
	s.activity.Begin(id, "", true).Follow(&follow)
	end := func() {
		s.activity.End(id)
		s.mail.Drop(id)
	}
	s.activity.Begin(own, "", false).Follow(&next.Config)
	rec, err := m.MoveTurn(ctx, conversation.Handover{
		ID: id, Agent: next.Config, Mail: s.mail.Reader(box, nil, nil), On: follow.On, Begun: k.ActAs,
		Start: func(ctx context.Context, prompt string, d task.Driver) (task.Record, error) {
			spec := task.Spec{ID: id, AgentType: task.MainSession, Model: m.model, Owner: own, Backgrounded: true,
				Description: excerpt.Line(prompt, 60), Prompt: prompt, Cwd: k.Me.Cwd}
			if spec.Description == "" {
				spec.Description = "answers what was reported"
			}
			if _, isTask := s.sup.Get(own); isTask {
				spec.Parent = own
			}
			rec, err := s.sup.Start(ctx, d, spec)
			if err != nil {
				return rec, tasks.NotStarted(err)
			}
			return rec, nil
		},
		Fork: func() (*agent.Transcript, error) {
			meta := agent.Meta{ParentTask: string(own), Version: s.cfg.Info.Version, Cwd: k.Me.Cwd, IsSidechain: true,
				AgentName: agents.MainName, AgentID: string(id), SessionID: string(own), Sync: s.cfg.Options.Power()}
			if err := agent.ForkTranscript(s.cfg.Place.Transcript(), path, meta); err != nil {
				return nil, err
			}
			t, _, err := agent.OpenTranscript(path, meta)
			if err != nil {
				return nil, err
			}
			if err := agents.LinkTranscript(path, s.cfg.Place.OutputLink(id)); err != nil {
				return nil, errors.Join(err, t.Close())
			}
			return t, nil
		},
		Close: func() {
			end()
			k.Close()
		},
	})
	if err != nil {
		end()
	}
	return rec, err
}
