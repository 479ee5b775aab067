// Package environment has the parts of what surrounds an agent beside its model: what
// it is reminded of, and who else edits the files that it edits.
//
// Each part owns its state and can be used by several goroutines. An agent reads
// everything once.
//
// It does not start agents; package session puts the parts together.
package environment
