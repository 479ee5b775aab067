// Package worktree keeps isolated checkouts: a linked git worktree for one task,
// on a branch of its own, below one folder.
//
// It promises that nothing is removed but what is clean and reachable: no change,
// no file that git does not know, no commit that only this checkout holds. Every
// step begins with a receipt, so that whatever a crash leaves can be finished by
// [Store.Sweep]; a live owner holds a lock, which ends with its process. Branches
// of the user are never moved, hooks never run, and what is deleted is deleted
// through the store's own folder, so that no link leads out of it.
//
// Git is called by gitrun. A repository whose own configuration sets a filter is
// refused. Filters in the configuration of the user are his own, and run.
//
// It does not know sessions, permissions or agents, and it merges nothing:
// package merge does.
package worktree
