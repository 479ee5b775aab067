// Package control is the one API through which every frontend sees a session: [API],
// a Go interface, with [Client] and [Server] to carry it over HTTP and server-sent
// events on a unix socket.
//
// A frontend cannot distinguish an [API] in its own process from one behind a socket:
// both return the same values and the same errors ([*Error]), and events by sequence
// number, which a client can resume after any disconnect. The package holds no state
// of a session.
package control
