// Package process starts programs in their own process groups, waits for them, and
// ends all processes that they started.
//
// It owns the rules about process IDs. An [Identity] names a process even if its
// process ID is reused, and signals are sent only to processes that were verified as
// ours, through a pidfd where the kernel has one. Waiting occupies no thread. The
// package keeps no list of processes, reads no output, and knows tasks only by the
// marks in the environment of children.
package process
