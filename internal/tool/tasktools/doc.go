// Package tasktools are the tools by which an agent works with tasks: Agent
// starts one of its kind, SendMessage writes to one, read_agent reads what one has
// answered, TaskOutput looks at any task, TaskStop ends one, and
// ListTasks lists them.
//
// It owns the words of these tools: their input dialects, their texts and
// structured results. It promises that input is normalised before anything is
// asked of [Tasks], and that the text of another agent reaches the model marked
// as such. It starts, waits for and stops nothing by itself.
package tasktools
