// Package netproxy is the proxy through which sandboxed commands reach the network.
//
// One port speaks HTTP CONNECT, plain HTTP and SOCKS5. Every request is judged by
// itself: what [Rules] allow is connected at once, what they do not is asked about
// ([Config.Allow]) or refused. A name is resolved here, and only after it was allowed.
// Addresses of this machine, of private networks and of cloud metadata services are
// refused unless a rule names them; the address that was checked is the one dialled.
// Connections, questions, headers and times are bounded.
//
// The package does not start commands and does not know where its listener is. It looks into the TLS
// of hosts with a [Credential] only: of other HTTPS it judges the name in CONNECT, not the one in the handshake.
package netproxy
