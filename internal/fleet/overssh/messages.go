// Package overssh makes a worker on another machine over the user's own ssh.
//
// Three processes take part. [Run] is on the machine that reaches the hub: it has ssh start the
// program on the other one, copies it there before if its checksum is not the same, and carries the
// connections of the worker to the hub. [Bridge] is what ssh starts: it passes bytes between ssh
// and the socket of the worker, and starts the worker if none runs. A [Daemon] is the worker's
// side, in a process that outlives the connection: without a bridge its tasks continue, until
// their leases end, and it ends when none has come for [Settings.Away].
//
// Over ssh runs one session of yamux. Its first stream, which [Run] opens, has a line of JSON for
// each message; each further one is opened by the worker and is a connection to the hub. What lets
// a worker in at the hub travels in the first message only: never in arguments, an environment or
// a file. The package knows nothing of tasks and claims.
package overssh

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

// version is the version of the messages. Programs of two versions can meet: see --binary.
const version = 1

// Settings configure a worker.
type Settings struct {
	Name     string        `json:"name"`
	Labels   []string      `json:"labels,omitempty"`
	Capacity int           `json:"capacity,omitempty"` // 0: the processors of its machine
	Join     string        `json:"join"`               // the line by which it joins the hub
	Away     time.Duration `json:"away_ns"`            // how long it continues without a connection
}

// attach is the first message to a worker.
type attach struct {
	Version int      `json:"version"`
	Key     string   `json:"key"`   // of whom it works for, and how
	Run     string   `json:"run"`   // of the process that attaches
	First   bool     `json:"first"` // that process has not been attached before
	Worker  Settings `json:"worker"`
}

// order is each further message to it.
type order struct {
	Stop bool `json:"stop,omitempty"` // end the tasks, and the worker
}

// report is a message of a worker.
type report struct {
	Refused  string `json:"refused,omitempty"`  // why the bridge may not attach
	Ending   bool   `json:"ending,omitempty"`   // it ends at this moment, and another can take its place
	Instance string `json:"instance,omitempty"` // attached, to this start of the worker
	Ready    bool   `json:"ready,omitempty"`    // it takes tasks
	Log      string `json:"log,omitempty"`      // a line for the user
	Ended    bool   `json:"ended,omitempty"`    // the worker ends, none of its tasks is left
	Error    string `json:"error,omitempty"`    // why
}

// Bounds.
const (
	maxLine    = 64 << 10 // bytes of a message
	window     = 1 << 20  // bytes on their way in one stream
	saidWithin = 2 * time.Second
)

// multiplex is how both sides use yamux. A slow link may have megabytes before an answer to a ping.
func multiplex() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog, c.MaxStreamWindowSize = 8, window
	c.KeepAliveInterval, c.ConnectionWriteTimeout = 10*time.Second, 30*time.Second
	c.LogOutput = io.Discard // what ends a session is an error of its streams
	return c
}

// say writes a message, or fails soon: who does not read it is gone.
func say(to net.Conn, message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	if err := to.SetWriteDeadline(time.Now().Add(saidWithin)); err != nil {
		return err
	}
	_, err = to.Write(append(line, '\n'))
	return err
}

// lines reads messages.
func lines(from io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(from)
	s.Buffer(nil, maxLine)
	return s
}

// next reads a message.
func next(s *bufio.Scanner, into any) error {
	if !s.Scan() {
		return errors.Join(s.Err(), io.EOF)
	}
	if err := json.Unmarshal(s.Bytes(), into); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	return nil
}
