// Package ended maintains sessions that no host has open: it finds those that exceed the
// retention, removes their files, writes their descriptions again, and ends processes whose
// host has died.
//
// Nothing is removed of a session that is open, that has running tasks, or that changed since
// it was examined. A kept command is spared wherever processes are ended.
//
// The package does not start or adopt tasks; the next host of a session does that.
package ended
