package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/task"
)

// dying is a host that does with each connection what it is told, and then closes it.
func dying(t *testing.T, do func(net.Conn)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); served.Wait() })
	return socket
}

// reads takes the head of a request, and its body if it is asked for.
func reads(body bool) func(net.Conn) {
	return func(c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil || !body {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

// TestUntaken loses a host at each step of a request.
func TestUntaken(t *testing.T) {
	start := func(c *Client) error {
		_, err := c.Start(t.Context(), []StartRequest{{Shell: &ShellRequest{Line: "true"}}})
		return err
	}
	get := func(c *Client) error { _, err := c.Get(t.Context(), "b1"); return err }
	promote := func(c *Client) error { _, err := c.Promote(t.Context(), "b1"); return err }
	for name, c := range map[string]struct {
		host func(net.Conn)
		ask  func(*Client) error
		want bool
	}{
		"accepted": {func(net.Conn) {}, start, true},
		"head":     {reads(false), start, true},
		"body":     {reads(true), start, false},
		"read":     {reads(false), get, true},
		"bodyless": {reads(false), promote, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := Dial(dying(t, c.host))
			defer client.Close()
			err := c.ask(client)
			var e *Error
			if !errors.As(err, &e) || e.Code != Unavailable || Refused(err) != c.want {
				t.Errorf("%v: not taken is %v", err, Refused(err))
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		if err := start(Dial(filepath.Join(t.TempDir(), "none"))); !Refused(err) {
			t.Error(err)
		}
	})
}

// TestFollow goes on with the next host where nothing was done, and nowhere else.
func TestFollow(t *testing.T) {
	follow := func(t *testing.T, first string, next func() (string, error)) (*Client, *atomic.Int32) {
		asked := new(atomic.Int32)
		c := Follow(first, func(context.Context) (string, error) { asked.Add(1); return next() })
		t.Cleanup(func() { _ = c.Close() })
		return c, asked
	}
	start := func(t *testing.T, c *Client, name string) ([]Started, error) {
		return c.Start(t.Context(), []StartRequest{{Name: name, Shell: &ShellRequest{Line: "true"}}})
	}
	t.Run("once", func(t *testing.T) {
		w := serve(t, NewServer(newFake()))
		c, asked := follow(t, dying(t, reads(false)), func() (string, error) { return w.socket, nil })
		var group sync.WaitGroup
		for _, name := range []string{"one", "two", "three"} {
			group.Go(func() {
				if got, err := start(t, c, name); err != nil || got[0].Task.Name != name {
					t.Error(got, err)
				}
			})
		}
		group.Wait()
		page, err := c.List(t.Context(), ListRequest{All: true})
		names := map[string]int{}
		for _, r := range page.Tasks {
			names[r.Name]++
		}
		if err != nil || asked.Load() != 1 || names["one"] != 1 || names["two"] != 1 || names["three"] != 1 {
			t.Errorf("%v; %v; the next host was looked for %d times", names, err, asked.Load())
		}
	})
	t.Run("taken", func(t *testing.T) {
		c, asked := follow(t, dying(t, reads(true)), func() (string, error) { return "", errors.New("must not be asked") })
		if _, err := start(t, c, "one"); err == nil || asked.Load() != 0 {
			t.Errorf("%v; the next host was looked for %d times", err, asked.Load())
		}
	})
	t.Run("bounded", func(t *testing.T) {
		bad := dying(t, reads(false))
		c, asked := follow(t, bad, func() (string, error) { return bad, nil })
		if _, err := start(t, c, "one"); !Refused(err) || asked.Load() != mostHosts-1 {
			t.Errorf("%v; the next host was looked for %d times", err, asked.Load())
		}
	})
	t.Run("none", func(t *testing.T) {
		why := errors.New("no host")
		c, _ := follow(t, dying(t, reads(false)), func() (string, error) { return "", why })
		if _, err := start(t, c, "one"); !errors.Is(err, why) {
			t.Error(err)
		}
	})
}

// TestUntakenBatch answers for a batch as a whole if nothing of it was started.
func TestUntakenBatch(t *testing.T) {
	late := Started{Error: &Error{Code: Unavailable, Message: "the session is closing", NotAccepted: true}}
	wrong := Started{Error: &Error{Code: Invalid, Message: "no command"}}
	begun := Started{Task: &task.Record{ID: "b1"}}
	for name, c := range map[string]struct {
		batch []Started
		want  bool
	}{
		"all":     {[]Started{late, late}, true},
		"wrong":   {[]Started{wrong, late}, true},
		"some":    {[]Started{begun, late}, false},
		"refused": {[]Started{wrong}, false},
		"none":    {nil, false},
	} {
		if got := untaken(c.batch); Refused(got) != c.want || (got == nil) == c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
