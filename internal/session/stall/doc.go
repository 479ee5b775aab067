// Package stall decides from the end of a command's output whether the command
// waits for somebody to answer.
//
// It is a pure rule over text: it reads no file, knows no process and keeps no
// time. What it cannot know it takes for progress: a false alarm wakes a model for
// nothing, and a person who looks sees the prompt.
package stall
