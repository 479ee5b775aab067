// Package process starts programs in groups of their own, waits for them, and
// ends everything that they started.
//
// It owns the rules about process numbers: a process is named by an [Identity]
// that outlives the reuse of its number, and a signal goes only to what was
// proven to be ours, by a descriptor where the kernel has one. Waiting costs no
// thread. It keeps no list of what it started, reads no output, and does not
// know what a task is beyond the marks that children carry in their environment.
package process
