package control

import "time"

// ForwardRequest forwards a port of the network that the sandboxed commands of a session share to this
// machine, or ends that. The zero request changes nothing.
type ForwardRequest struct {
	Port     int  `json:"port,omitempty"`      // inside; 1 to 65535
	HostPort int  `json:"host_port,omitempty"` // of this machine's loopback address; 0: the same number
	End      bool `json:"end,omitempty"`
}

// Forwards are the ports of a session that are forwarded, in the order of their numbers.
type Forwards struct {
	Forwards []Forward `json:"forwards"`
}

// Forward is a port that is forwarded until the session is closed.
type Forward struct {
	Port        int       `json:"port"`    // inside
	Address     string    `json:"address"` // on this machine, such as 127.0.0.1:3000
	Since       time.Time `json:"since"`
	Connections int       `json:"connections"` // that are open
}
