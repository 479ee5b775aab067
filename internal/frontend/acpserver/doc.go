// Package acpserver serves Drover as an agent of the Agent Client Protocol, version 1: an editor starts
// `drover acp` and speaks JSON-RPC with it over stdin and stdout.
//
// Each session of the client is a session of Drover, which other terminals list, watch and stop. The package
// owns the mapping: prompts to prompts of the main agent, events of agents and tasks to session/update
// notifications, questions of the session to requests to the client. It promises that the updates of a turn
// come before the answer to its prompt, and that nothing runs after [Serve] has returned. It does not open
// sessions; the [Host] does. The connection is that of package acpwire; extra.go has the messages that the
// types of github.com/coder/acp-go-sdk lack.
package acpserver
