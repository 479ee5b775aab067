// Package agentsdk is what `drover -p` prints: one prompt's session as lines
// of JSON, as one JSON object, or as the text of the last answer.
//
// A [Stream] turns the events of agents and the event log of the session into
// lines. It promises that every line is whole and on its own, that what a line
// tells was durable before, and the order of docs/stream-json.md: the events
// of a task stand before the tool result of the call that started it, and its
// notification before the turn that delivers it.
//
// It starts no goroutine, reads no input, and decides nothing: it neither
// waits for tasks nor chooses an exit code. The words of the wire that differ
// from ours are mapped in wire.go and nowhere else.
package agentsdk
