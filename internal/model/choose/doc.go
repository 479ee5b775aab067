// Package choose decides which model an agent gets.
//
// A [Policy] weighs what was asked for, what the agent's definition prefers,
// what the parent has and what the session may cost, and gives one name. It
// promises that every choice goes the same way, that a model somebody asked
// for is refused when it may not be used and never replaced in silence, and
// that whatever was chosen other than wished is said in a note. It does no I/O,
// knows no prices of its own and sends nothing.
package choose
