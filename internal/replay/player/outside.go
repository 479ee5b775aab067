package player

import (
	"errors"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/replay/recording"
	"github.com/drover-dev/drover/task"
)

// Text returns what an agent has read from outside. have is what it would read now: in a run that goes on live,
// and where nothing was recorded.
func (p *Player) Text(id task.ID, what, have string, wrong error) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.byAgent[p.main(id)]
	if p.live || a == nil || a.read[what] >= len(a.texts[what]) {
		return have, wrong
	}
	e := a.texts[what][a.read[what]]
	a.read[what]++
	if e.Failure != nil {
		return "", errors.New(e.Failure.Text)
	}
	return e.Texts[0], nil
}

// Command returns what a prompt with the name of a command has become; nil: it was none. The shell lines that it
// has run are run again as tasks, which are played. recorded is false where nothing was recorded.
func (p *Player) Command(run func(agent.Call)) (text *string, recorded bool, err error) {
	p.mu.Lock()
	if p.command >= len(p.commands) {
		p.mu.Unlock()
		return nil, false, nil
	}
	e := p.commands[p.command]
	p.command++
	p.mu.Unlock()
	for _, c := range e.Calls {
		run(c)
	}
	switch {
	case e.Failure != nil:
		return nil, true, errors.New(e.Failure.Text)
	case len(e.Texts) > 0:
		return &e.Texts[0], true, nil
	}
	return nil, true, nil
}

// Checkout returns the worktree in which an agent has worked. open is true if it is to be made: the run goes on live.
func (p *Player) Checkout(id task.ID) (t recording.Tree, open bool, err error) {
	if p.live {
		return t, true, nil
	}
	p.mu.Lock()
	a := p.byAgent[id]
	if a == nil || a.opened >= len(a.trees) {
		p.mu.Unlock()
		return t, false, p.diverge("agent %s works in a worktree of its own, and none was recorded (record the run again)", p.called(id))
	}
	defer p.mu.Unlock()
	a.opened++
	return *a.trees[a.opened-1].Tree, false, nil
}

// Left returns what was left of a worktree that [Player.Checkout] has returned; nil: it is a real one.
func (p *Player) Left(id task.ID) *task.Worktree {
	if p.live {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.byAgent[id]
	if a == nil || a.ended >= len(a.left) {
		return &task.Worktree{Removed: true} // its agent was at work when the recording ended
	}
	a.ended++
	return a.left[a.ended-1].Left
}
