// Package shell runs commands: the kind local_bash.
//
// A command runs in its own process group and writes directly to the task's output
// file; this process copies output only to show it at the same time. Run returns when
// the command and all that it started have ended, or are listed as survivors. A kept
// command continues without its host, and the next host adopts it with its exit code.
//
// Environments never reach the journal: they belong to the driver value, not to the
// input of a task. The package does not check permissions.
package shell
