// Package todo keeps lists of what is to be done.
//
// A list is a folder with one JSON file per to-do, N.json. The package promises
// that a number is never given twice, also after a deletion or a crash; that
// changes by many processes at once lose nothing; that a reader sees each to-do
// as it was before a change or after it, never a part; and that a file which
// cannot be read is named and hinders no other. What a newer version has put
// into a to-do is kept.
//
// Which to-do waits for which is stored with the one that waits, and nowhere
// else, so no crash can leave the two ends of an edge disagreeing. A circle is
// refused when it is written. To-dos are not tasks: nothing here runs.
package todo
