// Package todotools are the tools by which an agent keeps its list of what is to
// be done: TaskCreate, TaskGet, TaskList and TaskUpdate.
//
// It owns the words of these tools, and the order in which a change, the hooks
// that may refuse it, and the word to a new owner come. It holds no lock while
// a hook runs. The list itself is that of package todo; nothing here touches a
// task, in spite of the names, which models know.
package todotools
