// Package failpoint names places where a test build can be stopped.
//
// In a build with the tag failpoint, [Hit] tells a harness over a socket that a
// place was reached, and obeys its answer: continue, die at once, or fail. Without
// the tag it does nothing, and its names are not in the program. It keeps no state:
// the harness counts. The harness names the places in DROVER_FAULT, separated by
// commas (* means all), and its unix socket in DROVER_FAULT_SOCKET. The places are
// listed in docs/reliability.md.
package failpoint
