// Package worktree keeps isolated checkouts: a linked git worktree for one task,
// on a branch of its own, below one folder.
//
// It removes only checkouts that are clean and reachable, so no uncommitted change, no
// untracked file and no commit that only this checkout holds is lost. Every
// step begins with a receipt, so that [Store.Sweep] can finish the work of a
// crashed process; a live owner holds a lock, which ends with its process. Branches
// of the user are never moved, hooks never run, and files are deleted
// through the store's own folder, so that no link leads out of it.
//
// Git is called by gitrun. A repository whose own configuration sets a filter is
// refused. Filters in the configuration of the user run.
//
// It does not know sessions, permissions or agents, and it merges nothing:
// package merge does.
package worktree
