// Package keeper is the process that outlives the host and leaves nothing
// behind.
//
// It has two forms. For a detached host it is the parent ([RunParent]): the
// kernel hands it every orphan and every exit code. For a host that is the
// process a person started it is a helper beside it ([Helper], [RunHelper]),
// which finds what is left by the groups it was told of and by the marks that
// children carry. Either way, when the host is gone, by whatever way, all that
// it started is gone within 2 s, but for tasks that are to be kept, and for other
// detached hosts with a keeper of their own, which belong to nobody.
//
// The parent form writes the exit of a kept task to a file; the helper cannot
// know it. What left a kept task's group, its parents and its environment is
// nobody's and is ended. The keeper has no state on disk of its own, starts no
// task and never starts one again.
package keeper
