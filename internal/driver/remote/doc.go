// Package remote runs work in a session of a remote service, as tasks of kind
// remote_agent. It creates the session, polls it until it has ended, and writes its
// output to the local output file.
//
// A run creates exactly one session, however often the host dies. Local output has no
// gaps and no duplicates. A stop ends the session, or the receipt names it. The
// session continues when this host closes, and the next host adopts it. The package
// does not know what the session does, nor whether the service repeats a request.
package remote
