// Package acpserver is Drover as an agent of the Agent Client Protocol, version 1: an editor
// starts `drover acp` and speaks JSON-RPC with it over stdin and stdout.
//
// Each session of the client is a session of Drover, which other terminals list, watch and
// stop. The package turns prompts into prompts of the main agent, what agents and tasks do
// into session/update notifications, and the questions of the session into requests to the
// client. It promises that every request is answered once, that the updates of a turn come
// before the answer to its prompt, that requests begin in the order in which they arrive, and
// that nothing runs any more when [Serve] has returned. It opens no session itself: that is
// the [Host].
//
// The types of the protocol are those of github.com/coder/acp-go-sdk. Its connection is not
// used: it ends at a message of 10 MiB, does not answer what it cannot read, lets a
// session/cancel overtake its session/prompt, and has goroutines that nobody can wait for.
// Ours is in conn.go; what the types lack is in extra.go.
package acpserver
