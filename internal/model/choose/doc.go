// Package choose decides which model an agent gets.
//
// A [Policy] considers the request, the agent's definition, the parent's model and
// the cost limit of the session, and returns one name. A requested model that may
// not be used is an error, never replaced silently. A note reports every choice that
// differs from the preferred one. The package does no I/O and has no prices.
package choose
