// Package workflowfile is the file format of workflows: steps that need each other,
// with conditions, retries and time limits.
//
// It owns the reading of a file into a [Plan], the check that finds every fault
// with its line, the graph of the steps, and the expressions in them. A [Plan]
// that passes [Plan.Check] can be run to its end in the order of its graph.
//
// It reads no file by itself, starts nothing and knows nothing of tasks. The
// format is described in docs/workflows.md.
package workflowfile
