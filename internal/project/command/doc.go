// Package command finds commands that are prompts, and makes the prompt of one.
//
// A prompt `/name args` stands for a text: one of the program, of a file such as
// .claude/commands/name.md or .github/prompts/name.prompt.md, or of a skill. The text
// names where the arguments go, and which shell lines and files are to be included.
// [Split] recognises such a prompt, [Find] reads what there is, [Template.Expand]
// makes the text. Package command promises that a file with faults is loaded with a
// warning or named in [Catalog.Warnings], that an argument never becomes something to
// include, and that what waits for trust takes no name from anything else. It runs no
// shell line, includes no file and decides no permission: who calls it does.
package command
