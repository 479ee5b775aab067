// Package task defines what a task is ([Record]), how it is named ([ID], [Kind]), which
// changes of it are reported ([Event]), and what a driver does to run one ([Driver],
// [Host], [Spec], [Result]).
//
// The JSON form of a [Record] is the same wherever a task is shown: by the library, the
// drover command and its protocols. Values of this package are plain data and are safe
// for concurrent reading. The package starts no goroutine and does no I/O, and it imports
// the standard library only.
package task
