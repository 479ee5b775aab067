// Package task defines tasks ([Record]), their names ([ID], [Kind]), the changes that
// are reported of them ([Event]), and the contract of the drivers that run them
// ([Driver], [Host], [Spec], [Result]).
//
// The JSON form of a [Record] is the same wherever a task is shown: by the library, the
// drover command and its protocols. Values of this package are plain data and are safe
// for concurrent reading. The package starts no goroutine and does no I/O, and it imports
// the standard library only.
package task
