// Package stall decides from the end of a command's output whether the command waits for an
// answer.
//
// It is a pure rule over text: it reads no file, knows no process and measures no time. In
// doubt it decides for progress: a false alarm costs a call of a model, while a person who
// looks sees the prompt anyway.
package stall
