package process

import (
	"debug/buildinfo"
	"runtime/debug"
	"slices"
)

// MarkKeeper is carried, with the value [Detached], by the keeper of a detached host
// and by nothing that it starts. Such a host may have been started inside somebody's
// task and belongs to nobody above it: what goes from parents to children, as all
// endings do, goes past it.
const (
	MarkKeeper = "DROVER_KEEPER"
	Detached   = "detached"
)

// keeperWord is the only argument of a keeper that is the parent of its host.
const keeperWord = "keeper"

// module is in every program that can be such a keeper.
const module = "github.com/drover-dev/drover"

// detached reports whether a process is the keeper of a detached host. Anybody can
// carry the mark: it must also lead a session of its own, be of this user, be Drover,
// of whatever build, and have been started as a keeper. What cannot be looked at is
// none.
func (p Proc) detached() bool {
	if !p.Carries(MarkKeeper, Detached) || p.Group != p.PID || p.ended() {
		return false
	}
	args, program, ours := lookAt(p)
	if !ours || len(args) != 2 || args[1] != keeperWord {
		return false
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil || !isDrover(info) {
		return false
	}
	now, err := readProc(p.PID) // else all that was of somebody who got its number
	return err == nil && now.Start == p.Start
}

// isDrover reports whether a program is Drover, or has it as a library.
func isDrover(b *debug.BuildInfo) bool {
	return b.Main.Path == module || slices.ContainsFunc(b.Deps, func(m *debug.Module) bool { return m.Path == module })
}
