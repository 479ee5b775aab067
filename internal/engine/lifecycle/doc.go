// Package lifecycle holds the rules about tasks that only the engine needs: how a
// task changes ([Apply]), how the end of a run is recorded ([Ending]), what goes to
// the log with a change ([Entry], [Notification]), and how long texts of a record and a
// question are shortened.
//
// All rules are pure functions of the types of package task. The package starts no
// goroutine and does no I/O.
package lifecycle
