package netproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
)

// What RFC 1928 and RFC 1929 say.
const (
	socksVersion     = 5
	socksAuthVersion = 1

	methodPassword = 2
	methodNone     = 0xff

	commandConnect = 1

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	replyDone        = 0
	replyFailed      = 1
	replyRefused     = 2
	replyUnreachable = 4
	replyNobody      = 5
	replyExpired     = 6
	replyCommand     = 7
	replyAddress     = 8
)

// socksError is a handshake that ends with a reply.
type socksError struct {
	reply byte
	why   string
}

func (e *socksError) Error() string { return e.why }

// serveSOCKS serves a connection whose first byte was read.
func (s *service) serveSOCKS(c *conn) {
	r, err := socksHandshake(c, func(user, password string) error { return s.claim(c, user, password) })
	var answer *socksError
	if errors.As(err, &answer) {
		_ = writeReply(c, answer.reply)
	}
	if err != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	ctx, early := s.watch(c)
	up, _, err := s.connect(ctx, r, false)
	first := early()
	if err != nil {
		s.logFailure(r, err)
		_ = writeReply(c, replyTo(err))
		return
	}
	defer func() { _ = up.Close() }()
	out := Outcome{Err: writeReply(c, replyDone)}
	if out.Err == nil {
		out.Sent, out.Received = s.relay(c, first, up)
	}
	s.cfg.Log(r, out)
}

// watch ends a context when the client closes the connection. The function that it
// returns ends the watch and returns what the client has sent meanwhile, a byte at most.
func (s *service) watch(c *conn) (context.Context, func() []byte) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	got := make(chan []byte, 1)
	s.running.Go(func() {
		b := make([]byte, 1)
		n, err := c.Read(b)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel(errNobodyWaits)
		}
		got <- b[:n]
	})
	return ctx, func() []byte {
		_ = c.SetReadDeadline(time.Unix(1, 0))
		first := <-got
		_ = c.SetReadDeadline(time.Time{})
		cancel(nil)
		return first
	}
}

// socksHandshake reads from the second byte to the end of the request. It reads 800 bytes at
// most, and never a byte after the request.
func socksHandshake(rw io.ReadWriter, claim func(user, password string) error) (Request, error) {
	methods, err := readString(rw)
	if err != nil {
		return Request{}, err
	}
	chosen := byte(methodNone)
	for i := range len(methods) {
		if methods[i] == methodPassword {
			chosen = methodPassword
		}
	}
	if _, err := rw.Write([]byte{socksVersion, chosen}); err != nil {
		return Request{}, err
	}
	if chosen == methodNone {
		return Request{}, errCredentials
	}
	user, err := readCredentials(rw, claim)
	if err != nil {
		return Request{}, err
	}
	return readSOCKSRequest(rw, user)
}

// readCredentials reads a user and a password and says whether they are good.
func readCredentials(rw io.ReadWriter, claim func(user, password string) error) (string, error) {
	var version [1]byte
	if _, err := io.ReadFull(rw, version[:]); err != nil {
		return "", err
	}
	if version[0] != socksAuthVersion {
		return "", fmt.Errorf("SOCKS authentication has version %d, not 1", version[0])
	}
	user, err := readString(rw)
	if err != nil {
		return "", err
	}
	password, err := readString(rw)
	if err != nil {
		return "", err
	}
	status := byte(0)
	refused := claim(user, password)
	if refused != nil {
		status = 1
	}
	if _, err := rw.Write([]byte{socksAuthVersion, status}); err != nil {
		return "", err
	}
	return user, refused
}

func readSOCKSRequest(r io.Reader, user string) (Request, error) {
	var head [4]byte // version, command, reserved, kind of address
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Request{}, err
	}
	if head[0] != socksVersion || head[2] != 0 {
		return Request{}, &socksError{replyFailed, "the request is not of SOCKS 5"}
	}
	var host string
	var err error
	switch head[3] {
	case addressIPv4:
		var a [4]byte
		_, err = io.ReadFull(r, a[:])
		host = netip.AddrFrom4(a).String()
	case addressIPv6:
		var a [16]byte
		_, err = io.ReadFull(r, a[:])
		host = netip.AddrFrom16(a).String()
	case addressName:
		host, err = readString(r)
	default:
		err = &socksError{replyAddress, "the request has an unknown kind of address"}
	}
	if err != nil {
		return Request{}, err
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return Request{}, err
	}
	if head[1] != commandConnect {
		return Request{}, &socksError{replyCommand, "only connections can be made"}
	}
	out, err := newRequest(user, host, strconv.Itoa(int(port[0])<<8|int(port[1])))
	if err != nil {
		return Request{}, &socksError{replyFailed, err.Error()}
	}
	return out, nil
}

// readString reads a length of one byte and that many bytes.
func readString(r io.Reader) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", err
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return string(b), err
}

func writeReply(w io.Writer, reply byte) error {
	_, err := w.Write([]byte{socksVersion, reply, 0, addressIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

// replyTo is the reply for a connection that was not made.
func replyTo(err error) byte {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return replyRefused
	case errors.Is(err, syscall.ECONNREFUSED):
		return replyNobody
	case errors.Is(err, context.DeadlineExceeded):
		return replyExpired
	}
	return replyUnreachable
}
