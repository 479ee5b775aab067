// Package tasktools has the tools with which an agent works with tasks: Agent starts
// an agent, SendMessage writes to one, read_agent reads its answers, TaskOutput reads
// any task, TaskStop stops one, and ListTasks lists them.
//
// It owns the input dialects, texts and structured results of these tools. Input is
// normalised before it reaches [Tasks], and text of another agent is marked as such.
// The package does not start, wait for or stop anything itself.
package tasktools
