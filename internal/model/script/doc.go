// Package script is a model that replies from a file. Users test agents, tools and
// permissions with it without a provider, and tests get a model that answers at once.
//
// It owns the format of the file (docs/script.md). [Load] reports every error of a
// file with file, agent and turn. A resumed conversation continues at the right turn.
// The package does not interpret the conversation and does no network I/O.
package script
