// Package memory keeps what the agents of a project have learnt: files that a
// person can read, a board of short entries, and who may consolidate them when.
//
// The files are Markdown in one folder; MEMORY.md is their index, and the only one
// that is read into new sessions, up to a bound. The board is one JSON object per
// line. A change of it happens under a lock and is whole or not there; a last line
// that was torn is set aside and loses nothing else. The consolidation lock is a
// file whose time of change is that of the last consolidation: one process holds
// it, and what a holder that died has left is put back by the next who looks.
//
// It promises to follow no link, to wait for no pipe and to bound what it reads. It
// runs no agent, and does not judge what is remembered.
package memory
