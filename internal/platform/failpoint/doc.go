// Package failpoint names places where a test build can be stopped in its tracks.
//
// In a build with the tag failpoint, [Hit] tells a harness over a socket that a
// place was reached, and does as it is told: go on, die at once, or fail. Without
// the tag it is nothing, and its names are not in the program. It keeps no state:
// what is counted is counted by the harness, which names the places in
// DROVER_FAULT, apart by commas (* stands for all), and its unix socket in
// DROVER_FAULT_SOCKET. The places are listed in docs/reliability.md.
package failpoint
