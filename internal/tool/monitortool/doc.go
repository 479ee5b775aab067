// Package monitortool is the tool Monitor: it turns a model's call into a monitor
// task that goes on in the background.
//
// A file is found as the file tools find theirs, in the folders that may be used.
// How things are watched and events are told is the work of [Monitors]; whether a
// command, file or server may be used is decided before the call.
package monitortool
