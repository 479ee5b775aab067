// Package memory keeps what the agents of a project have learnt: files that a
// person can read, a board of short entries, and who may consolidate them when.
//
// The files are Markdown in one folder; MEMORY.md is their index, and the only one
// that is read into new sessions, up to a bound. The board is one JSON object per
// line. A change of it happens under a lock and is whole or not there; a last line
// that was torn is set aside and loses nothing else. The consolidation lock is a
// file whose modification time is the time of the last consolidation. One process
// holds it; if the holder dies, the next process that looks undoes its changes.
//
// The package follows no link, waits for no pipe and bounds its reads. It runs no
// agent, and does not judge the memories.
package memory
