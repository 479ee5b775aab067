// Package agentsdk is the wire of the Agent SDK (@anthropic-ai/claude-agent-sdk 0.3.329) for one session.
//
// A [Stream] prints the session for `drover -p`: as lines of JSON, as one JSON object, or as the text of the last
// answer. It promises that every line is whole, that it reports only durable events, and the order of
// docs/stream-json.md: the events of a task come before the tool result of the call that started it, and its
// notification before the turn that delivers it.
//
// A [Conn] is the connection to a program that drives the session: it reads prompts and control requests from
// stdin, answers them, and asks the program about permissions, hooks and calls of the program's own MCP tools. It
// promises that every request is answered once, with an error if Drover does not support it, that a question ends
// with the program's stdin, and that an unreadable line is reported on stderr and skipped.
//
// The package does not open sessions, wait for tasks or choose an exit code. The words of the wire that differ from
// ours are mapped in wire.go.
package agentsdk
