// Package merge brings the changes of agents in their worktrees to a branch of the
// user: it rebases them on the branch in a scratch checkout, one after the other, and
// then moves the branch.
//
// It promises that a branch and the work tree in which it is checked out move together
// or not at all, whenever the process is killed: each move is written to a journal on
// the disk first, and the next merge or [Store.Recover] finishes it or takes it back.
// Uncommitted changes of the user are never overwritten.
//
// It does not know sessions, tasks or agents, and runs no checks.
package merge
