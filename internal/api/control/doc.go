// Package control is the one API by which every face sees a session: [API],
// a Go interface, with [Client] and [Server] to carry it over HTTP and
// server-sent events on a unix socket.
//
// It promises that a face cannot tell an [API] in its own process from one
// behind a socket: the same values, the same errors ([*Error]), and events by
// sequence number that can be taken up again after any break. It holds no
// state of a session and decides nothing about tasks.
package control
