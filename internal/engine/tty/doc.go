// Package tty gives a command a terminal.
//
// It owns both ends of a pseudo-terminal, the process that holds the controlling end
// ([Run]), which writes the command's output to a file and types for other processes,
// and the input pipe through which they type ([InputWriter]). Typed text is not stored; only
// the terminal's echo shows it.
//
// The package does not know tasks, starts no process, and renders nothing.
package tty
