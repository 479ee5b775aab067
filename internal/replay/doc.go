// Package replay records a run of a session in a file, plays the file, and compares two recordings.
//
// A recording holds what came into the turn loops of all agents (answers of models, results of tools, mail,
// texts of hooks and reminders) and what came into the log of the session, in one order. A [Recorder] writes
// it; a [Player] gives all of it again to a real session, in the recorded order. Both are seams of a session
// and change nothing else in it. The first line of the file says what it is, the last one how many lines there
// are and their digest: a file that was cut or changed is refused.
package replay
