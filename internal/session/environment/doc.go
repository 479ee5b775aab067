// Package environment has the parts of an agent's environment other than its model: its reminders,
// its checkout, other editors of the same files, its tools, and the gate of its rules.
//
// A part with state owns it and can be used by several goroutines; the rest are pure rules. An
// agent reads each text once, and a child never has more than its parent.
//
// The package does not start agents; package session combines the parts.
package environment
