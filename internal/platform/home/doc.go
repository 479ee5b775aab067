// Package home has the paths of the state directory, of the folders of projects and
// sessions in it, and of the sockets.
//
// Path methods are pure: they return a path and do no I/O. Files and folders that the
// package creates belong to this user alone and survive a power failure. A place that
// another user could write to is refused, and no ID leads out of the state directory.
// The package does not interpret the files.
package home
