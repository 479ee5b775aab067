package process

import "path/filepath"

// MarkKeeper, with the value [Detached], marks the keeper of a detached host and nothing that
// it starts. Such a host may have been started inside a task and does not belong to it: a
// search from parents to children skips it.
const (
	MarkKeeper = "DROVER_KEEPER"
	Detached   = "detached"
)

// keeperWord is the first argument of a keeper. The parent of a host has no further argument, or the path of drover and
// a build.
const keeperWord = "keeper"

// module is linked into every program that can be such a keeper.
const module = "github.com/drover-dev/drover"

// detached reports whether a process is the keeper of a detached host. Any process can carry
// the mark: this one must also lead its own session, belong to this user, run a Drover program
// of any build, and have been started as a keeper. A process that cannot be inspected is none.
func (p Proc) detached() bool {
	if !p.Carries(MarkKeeper, Detached) || p.Group != p.PID || p.ended() {
		return false
	}
	args, program, ours := lookAt(p)
	parent := len(args) == 2 || len(args) == 4 && filepath.IsAbs(args[2])
	if !ours || !parent || args[1] != keeperWord {
		return false
	}
	if !isDrover(program) {
		return false
	}
	now, err := readProc(p.PID) // the PID may belong to another process by now
	return err == nil && now.Start == p.Start
}
