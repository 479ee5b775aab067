// Package shelltool is the Bash tool: it turns a model's call into a shell task
// and the task's end into text that a model can use.
//
// It owns the working directory that carries over between the foreground calls
// of one agent, so every agent needs a tool value of its own. It promises that
// the model gets at most the output limit, cut at the front, with nothing live
// in it. How commands are run, ended and recorded is the work of [Shells].
package shelltool
