// Package spool keeps what tasks print.
//
// A spool is a file that grows at one end and is read from any offset. Writers
// are never blocked by readers. What Drover itself writes ends at a limit:
// beyond it output is dropped, counted, and said once; a child that owns the
// descriptor is ended by others when it reaches the limit. Reads are bounded
// by what was asked for, never by the size of the file.
//
// It promises that no open follows a link at the path or in its directory, nor
// takes a device, a pipe, a file with a second name or one of another user. A
// file that is not there is an error ([fs.ErrNotExist]), never empty output. It
// does not know what a task is, and makes nothing harmless for a terminal.
package spool
