// Package command finds commands that are prompts, and makes the prompt of one.
//
// A prompt `/name args` calls a template of the program, of a file such as
// .claude/commands/name.md or .github/prompts/name.prompt.md, or of a skill. The template
// has places for the arguments, and names the shell lines and files to include.
// [Split] recognises such a prompt, [Find] reads the commands, [Template.Expand]
// makes the text. Package command promises that a file with faults is loaded with a
// warning or named in [Catalog.Warnings], that an argument never becomes something to
// include, and that a command that waits for trust takes no name from another. It runs no
// shell line, includes no file and decides no permission: its callers do.
package command
