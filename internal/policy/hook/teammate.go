package hook

import (
	"context"

	"github.com/drover-dev/drover/agent"
)

// mate is the teammate whose turns a [Loop] takes part in.
type mate struct {
	name, team string
	leaving    func() bool
}

// Teammate makes it the loop of a teammate, which comes to rest after an answer and
// does not end: TeammateIdle takes the place of the SubagentStop that can be vetoed,
// and SubagentStop is sent once by End. Of a turn that is its last, by what leaving
// says, nothing is sent. It is called before the first turn.
func (l *Loop) Teammate(name, team string, leaving func() bool) {
	l.mate = &mate{name, team, leaving}
}

// idles sends TeammateIdle before a teammate comes to rest. A veto sends it on with
// its reason, as one of Stop does.
func (l *Loop) idles(ctx context.Context, res agent.TurnResult, blocked int) (reason string) {
	if l.mate.leaving() || !l.r.set.Has(TeammateIdle) {
		return ""
	}
	fields := l.stopFields(res, blocked > 0)
	fields["teammate_name"], fields["team_name"] = l.mate.name, l.mate.team
	return l.veto(TeammateIdle, l.r.Run(ctx, TeammateIdle, fields), blocked)
}
