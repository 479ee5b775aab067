// Package todo stores to-do lists.
//
// A list is a folder with one JSON file per to-do, N.json. Numbers are never reused,
// also after a deletion or a crash. Concurrent changes by several processes lose
// nothing. A reader sees each to-do before or after a change, never in between. A
// file that cannot be read is reported and blocks no other. Unknown fields of newer
// versions are preserved.
//
// An edge is stored only with the to-do that waits, so a crash cannot leave its two
// ends inconsistent. A cycle is refused when it is written. To-dos are not tasks and
// run nothing.
package todo
