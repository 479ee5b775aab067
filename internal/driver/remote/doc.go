// Package remote runs work in a session of a service elsewhere, as tasks of kind
// remote_agent: it makes the session, asks how it goes until it has ended, and
// writes down here what it prints.
//
// It promises one session for a run, however often this host dies; output in the
// local file without gaps and without doubles; that a stop ends the session or
// names it in the receipt; and that the work goes on when this host closes, and
// is taken up by the next. What the work does, and whether a service does a thing
// twice, it does not know.
package remote
