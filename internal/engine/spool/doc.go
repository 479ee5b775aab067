// Package spool stores the output of tasks.
//
// A spool is a file that grows at its end and is read from any offset. Readers
// never block writers. Output that Drover writes stops at a limit: the rest is
// dropped and counted, and the file says so once. A child that writes to the file
// directly is ended by the caller at the limit. A read is bounded by its request,
// never by the size of the file.
//
// Opening follows no link at the path or in its directory, and refuses devices,
// pipes, files with a second name and files of another user. A missing file is
// [fs.ErrNotExist], never empty output. The package does not know tasks, and does
// not escape output for a terminal.
package spool
