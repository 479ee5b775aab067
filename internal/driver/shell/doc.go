// Package shell runs commands: the kind local_bash.
//
// A command is started in a group of its own and prints straight into the
// task's output file; this process copies nothing unless it is asked to show
// the output at the same time. Run returns when the command and all that it
// started are gone or named. A kept command goes on without its host, and the
// next host takes it up again with its true exit.
//
// Environments never reach the journal: they belong to a driver value and not
// to the input of a task. What a command may do is not decided here.
package shell
