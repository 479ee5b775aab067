// Package task holds the words of Drover: what a task is, how it is named,
// which states it passes through, and what a driver must do to run one.
//
// It promises that every rule about state is a pure function ([Apply], [Ending])
// and that the JSON of a [Record] is the one form in which a task is shown
// anywhere. It starts no goroutine and does no I/O; everything may import it,
// and it imports the standard library only.
package task
