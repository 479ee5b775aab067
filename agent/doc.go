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
// A conversation that fills the window of its model is summed up by the model,
// between replies and never within a call and its result; the transcript keeps
// what was said before. What was sent once is never changed otherwise: all that
// the model is told beside the conversation stands in new messages, so that each
// request begins with the bytes of the one before it.
//
// It does not know that tasks exist, who answers permission questions, or
// where a model lives; those are values given to it.
package agent
