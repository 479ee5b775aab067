// Package script is a model that follows a file: it lets users try their
// agents, tools and permissions without a provider, and gives tests a model
// that answers at once.
//
// It owns the form of the file (docs/script.md). It promises that every fault
// of a file is found by [Load] and told with file, agent and turn, and that a
// conversation goes on at the right turn after a resume. It does not read the
// conversation for meaning, and knows no network.
package script
