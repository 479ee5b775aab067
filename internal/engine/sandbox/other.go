//go:build !linux

package sandbox

import (
	"context"
	"net"

	"github.com/drover-dev/drover/task"
)

// Room is the namespaces of a session, which only Linux has.
type Room struct{}

// OpenRoom returns [ErrUnsupported].
func OpenRoom(RoomConfig) (*Room, error) { return nil, ErrUnsupported }

// RunStarter returns [ErrUnsupported].
func RunStarter() error { return ErrUnsupported }

// Listen returns [ErrUnsupported].
func (r *Room) Listen(int) (net.Listener, error) { return nil, ErrUnsupported }

// Dial returns [ErrUnsupported].
func (r *Room) Dial(context.Context, int) (net.Conn, error) { return nil, ErrUnsupported }

// Aside returns nothing.
func (r *Room) Aside() []string { return nil }

// Close does nothing.
func (r *Room) Close() {}

// ErrClosed is returned by a room whose starter is gone.
var ErrClosed = ErrUnsupported

// Probe finds nothing.
func Probe() Offer { return Offer{Room: ErrUnsupported} }

// In returns [ErrUnsupported].
func In(*Room, Offer, Bounds) (Forker, task.Sandbox, error) {
	return nil, task.Sandbox{}, ErrUnsupported
}

// Explain returns the text of an error.
func Explain(err error) string { return err.Error() }
