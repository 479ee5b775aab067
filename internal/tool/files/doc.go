// Package files holds the tools Read, Write and Edit.
//
// A set of tools belongs to one agent and remembers what that agent has seen of
// each file. It promises that no file is changed that the agent has not seen as
// it is, that nothing is written outside the folders it was given whatever
// links say, and that a file is replaced whole or not at all. It does not ask
// for permission; that is a gate's work.
package files
