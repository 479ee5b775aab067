// Package environment has the parts of what surrounds an agent beside its model: what
// it is reminded of, its checkout, who else edits the files that it edits, which tools it
// may have, and the gate of its rules.
//
// A part with state owns it and can be used by several goroutines; the rest are pure
// rules. An agent reads everything once, and a child never has more than its parent.
//
// It does not start agents; package session puts the parts together.
package environment
