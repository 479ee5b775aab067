// Package todotools has the tools with which an agent changes its to-do list:
// TaskCreate, TaskGet, TaskList and TaskUpdate.
//
// It owns the texts of these tools, and the order of a change, the hooks that may
// refuse it, and the message to a new owner. It holds no lock while a hook runs.
// Package todo stores the list. The names are those that models know; to-dos are not
// tasks.
package todotools
