// Package keeper is the process that outlives the host and ends the processes that
// the host left running.
//
// It has two forms. [RunParent] is the parent of a detached host: the kernel gives
// it every orphan and every exit code. [Helper] and [RunHelper] run with a host
// that a person started in the foreground, and find processes by the groups that the
// host reported and by the marks in their environment. When the host ends for any
// reason, its processes are gone within 2 s, except kept tasks, and other detached
// hosts, which have their own keeper.
//
// The parent form writes the exit code of a kept task to a file; the helper cannot
// know it. A process that left a kept task's group, parents and environment is ended.
// The keeper has no state on disk and starts no task.
//
// [RunFirst] is the first process of a container without an init: it reaps orphans.
package keeper
