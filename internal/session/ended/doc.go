// Package ended looks after sessions that no host has open: it finds those that
// retention does not keep, removes what they left, writes their description anew,
// and ends processes whose host has died.
//
// It promises that nothing is removed of a session that is open, of which work
// still runs, or which changed since it was looked at, and that a kept command is
// spared wherever processes are ended.
//
// It does not start or adopt tasks; the next host of a session does that.
package ended
