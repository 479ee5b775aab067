package builtin

import (
	"github.com/drover-dev/drover/internal/driver/acpclient"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// AgentOfOthers is an agent of another vendor. assemble puts its conversation together, with the
// agent as its model, which it opens. version is that of this program.
func (k *Kinds) AgentOfOthers(
	version string, teammate bool, assemble func(*acpclient.Agent) subagent.Assemble, in subagent.Input,
) Work {
	c := k.others
	c.Version = version
	d := acpclient.New(c, func(a *acpclient.Agent) task.Driver {
		if teammate {
			return subagent.NewTeammate(assemble(a))
		}
		return subagent.New(assemble(a))
	})
	return Work{Driver: d, Input: encode(in)}
}
