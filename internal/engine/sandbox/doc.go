// Package sandbox starts programs that the kernel bounds.
//
// A [Bounds] lists the files and addresses that a program may write, read and reach. Three mechanisms of Linux
// enforce it, each where the machine has it:
//
//   - Landlock (landlock(7)) bounds where a program and its children write, and to whom they
//     send signals.
//   - seccomp(2) refuses system calls that would lead around the others.
//   - A [Room] is a set of namespaces (user, mount, network) that the commands of one session
//     share: secrets are hidden in it, protected files are read-only, and its network has one
//     way out, the listener that [Room.Listen] returns.
//
// The package promises that a program which it starts is bounded as [Held] says, from its first
// instruction on, and that a bound which does not hold is named there as missing. It needs no
// privileges and no program but this one. Landlock and seccomp restrict one thread of this
// process, which forks the program and ends; a room has one process inside, the starter, which
// forks there in the same way, and whose children are children of this process.
//
// It does not decide which bounds a program gets, asks no questions, and knows no tasks.
package sandbox
