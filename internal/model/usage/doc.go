// Package usage counts the cost of model calls and enforces budgets.
//
// A [Table] has prices and windows of models, from the settings over a built-in,
// dated table. An [Accounts] holds the budget of one session and gives each agent an
// [agent.Meter], which reserves before a call and counts after it, so parallel agents
// exceed a budget by at most the one call that each has in progress. Every call is a
// line in a file of the session; [Read] and [Ledger] sum them.
//
// An unknown price is reported and never counted as zero. Impossible figures of a
// provider are counted as the most that the call may have cost. If a call cannot be
// written to the file, the next call fails. The package does not choose models and
// sends nothing. The file is not synced: it survives kill -9, not a power failure.
package usage
