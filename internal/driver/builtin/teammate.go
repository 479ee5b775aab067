package builtin

import "github.com/drover-dev/drover/subagent"

// Teammate is an agent that assemble puts together and that stays for messages.
func (k *Kinds) Teammate(assemble subagent.Assemble, in subagent.Input) Work {
	return Work{Driver: subagent.NewTeammate(assemble), Input: encode(in)}
}
