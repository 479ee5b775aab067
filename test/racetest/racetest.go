// Package racetest is how tests that repeat something many times do so less often with
// the race detector.
//
// The race detector makes code about ten times slower, and finds a race in the first
// hundreds of repetitions or not at all. [Rounds] and [Step] shorten them; `make repeat` runs such
// tests in full, without the race detector. Production code does not import it.
package racetest

// Rounds is full, or a tenth of it with the race detector.
func Rounds(full int) int {
	if enabled {
		return max(full/10, 1)
	}
	return full
}

// Step is the step of a loop that tries every case: 1, or n with the race detector.
func Step(n int) int {
	if enabled {
		return n
	}
	return 1
}
