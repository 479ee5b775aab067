// Package agent is the turn loop: a model, its tools, and the conversation
// between them.
//
// A [Loop] owns one conversation. It sends the conversation to a [Model],
// runs the tools that the model calls, side by side where they allow it, puts
// mail in at safe points, and keeps every message in a [Transcript] before
// anybody acts on it. It promises that a tool runs only for a whole call of a
// reply that came to its end, that every call gets exactly one result, and
// that mail is acknowledged only once the transcript holds it.
//
// It does not know that tasks exist, who answers permission questions, or
// where a model lives; those are values given to it.
package agent
