// Package shelltool is the Bash tool: it turns a call of the model into a shell task
// and the end of the task into text for the model.
//
// It owns the working directory that is kept between the foreground calls of one
// agent, so every agent needs its own tool value. The model gets at most the output
// limit, cut at the front, without escape sequences. [Shells] runs, ends and records
// commands.
package shelltool
