// Package merge brings what agents have changed in their worktrees to a branch of the
// user: rebased on it in a scratch checkout, one change after the other, and then the
// branch moves.
//
// It promises that a branch and the work tree in which it is checked out move together
// or not at all, whenever the process is killed: what is about to be done is written to
// a journal on the disk first, and the next merge or [Store.Recover] finishes it or
// takes it back. Nothing that the user has not committed is overwritten.
//
// It does not know sessions, tasks or agents, and runs no checks.
package merge
