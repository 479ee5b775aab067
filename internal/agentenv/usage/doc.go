// Package usage counts what models cost, and keeps sessions within what they may
// spend.
//
// A [Table] knows prices and windows of models: those of the settings over a
// dated table of its own. A [Purse] belongs to one session and gives each agent
// an [agent.Meter]: it reserves before a call and counts after it, so that
// agents side by side overshoot a budget by at most the one call that each has
// under way. Every call is a line in a file of the session; [Read] and [Ledger]
// add such lines up.
//
// It promises that a price it does not know is said and never taken for zero,
// that figures of a provider that cannot be true are counted as the most that
// the call may have cost, and that a call which could not be written down stops
// the next one. It does not choose models and sends nothing. The file is not
// synced: it survives kill -9, not a power cut.
package usage
