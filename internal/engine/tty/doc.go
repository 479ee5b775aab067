// Package tty gives a command a terminal that nobody sits at.
//
// It owns the two ends of a pseudo-terminal, the process at the end where a
// person would sit ([Run]), which writes what the command prints to a file and
// types for others, and the pipe through which these others type ([Pen]). What is
// typed is kept nowhere: the terminal's own echo is all that is seen of it.
//
// It does not know what a task is, starts no process, and draws nothing.
package tty
