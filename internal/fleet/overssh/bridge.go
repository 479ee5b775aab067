package overssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Bridge passes bytes between ssh, whose ends are in and out, and the socket of a worker, until one of them or ctx
// ends. If no process listens on the socket, begin starts the worker and returns when it listens.
func Bridge(ctx context.Context, socket string, begin func(context.Context) error, in *os.File, out io.Writer) error {
	conn, err := net.Dial("unix", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		if err := begin(ctx); err != nil {
			return err
		}
		conn, err = net.Dial("unix", socket)
	}
	if err != nil {
		return fmt.Errorf("connect to the worker: %w", err)
	}
	var reader sync.WaitGroup
	defer reader.Wait()
	hang := func() {
		_ = conn.Close()
		_ = in.SetReadDeadline(time.Unix(1, 0))
	}
	defer hang()
	defer context.AfterFunc(ctx, hang)()
	reader.Go(func() {
		defer hang()
		_, _ = io.Copy(conn, in) // ssh has ended, or the worker has
	})
	_, _ = io.Copy(out, conn)
	return nil
}
