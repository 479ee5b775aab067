package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
)

// unsubscribeTime limits the call that unsubscribes a resource.
const unsubscribeTime = 2 * time.Second

// subscriptions counts the watchers of a resource over one connection, which all share: the
// first one subscribes and the last one unsubscribes. Its zero value works.
type subscriptions struct {
	mu sync.Mutex
	by map[subscribed]*watchers // guarded by mu
}

type subscribed struct {
	conn *mcpclient.Conn
	uri  string
}

type watchers struct {
	users int // number of holders and waiters; guarded by mu of subscriptions

	asking sync.Mutex // held over calls of the server, so that its last call is the right one
	there  int        // number of watchers; guarded by asking
}

func (s *subscriptions) hold(key subscribed) (*watchers, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.by[key]
	if w == nil {
		if s.by == nil {
			s.by = map[subscribed]*watchers{}
		}
		w = &watchers{}
		s.by[key] = w
	}
	w.users++
	return w, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.users--; w.users == 0 {
			delete(s.by, key)
		}
	}
}

// begin subscribes to the resource. The caller calls end.
func (s *subscriptions) begin(ctx context.Context, conn *mcpclient.Conn, uri string) (end func(), err error) {
	w, release := s.hold(subscribed{conn, uri})
	w.asking.Lock()
	defer w.asking.Unlock()
	if w.there == 0 {
		if _, err := conn.Call(ctx, "resources/subscribe", map[string]string{"uri": uri}); err != nil {
			release()
			return nil, err
		}
	}
	w.there++
	return func() {
		defer release()
		w.asking.Lock()
		defer w.asking.Unlock()
		if w.there--; w.there > 0 {
			return
		}
		last, done := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTime)
		defer done()
		_, _ = conn.Call(last, "resources/unsubscribe",
			map[string]string{"uri": uri}) // after a failed call its events are ignored
	}, nil
}

// Resource is a resource of a server that a monitor watches, by the protocol of MCP 2025-11-25.
type Resource struct {
	s    *Servers
	name string
	use  func() (*mcpclient.Lease, error)
	uri  string
}

// Events yields the text of the resource, at once and after each change. It reconnects to a
// server that has ended, as long as the pool retries.
func (r *Resource) Events(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lease, err := r.use()
		if err != nil {
			yield("", err)
			return
		}
		defer lease.Release()
		for ctx.Err() == nil {
			conn, err := lease.Conn(ctx)
			if err == nil {
				err = r.watch(ctx, conn, yield)
			} else if ctx.Err() == nil && !errors.Is(err, mcpclient.ErrGivenUp) && !errors.Is(err, mcpclient.ErrClosed) {
				continue // the pool pauses between attempts
			}
			if err != nil && !errors.Is(err, mcpclient.ErrGone) {
				if ctx.Err() == nil && !errors.Is(err, errEnough) {
					yield("", err)
				}
				return
			}
		}
	}
}

// errEnough means that the reader of a resource has stopped.
var errEnough = errors.New("nobody reads")

// watch yields until the connection ends.
func (r *Resource) watch(ctx context.Context, conn *mcpclient.Conn, yield func(string, error) bool) error {
	var can struct {
		Resources *struct {
			Subscribe bool `json:"subscribe"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(conn.Capabilities(), &can); err != nil || can.Resources == nil || !can.Resources.Subscribe {
		return fmt.Errorf("MCP server %s does not tell of changes of resources", r.name)
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // it is read at once
	stop := conn.Listen("notifications/resources/updated", func(params json.RawMessage) {
		var p struct {
			URI string `json:"uri"` // or of a part of it
		}
		if json.Unmarshal(params, &p) != nil || !strings.HasPrefix(p.URI, r.uri) {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	end, err := r.s.subscriptions.begin(ctx, conn, r.uri)
	if err != nil {
		return err
	}
	defer end()
	for {
		select {
		case <-changed:
		case <-conn.Gone():
			return mcpclient.ErrGone
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		text, err := readResource(ctx, conn, r.uri)
		if err != nil {
			return err
		}
		if !yield(text, nil) {
			return errEnough
		}
	}
}

func readResource(ctx context.Context, conn *mcpclient.Conn, uri string) (string, error) {
	raw, err := conn.Call(ctx, "resources/read", map[string]string{"uri": uri})
	if err != nil {
		return "", err
	}
	var got struct {
		Contents []struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
			Blob string `json:"blob"`
		} `json:"contents"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return "", fmt.Errorf("read resource %s: %w", uri, err)
	}
	var texts []string
	for _, c := range got.Contents {
		if c.Blob != "" {
			c.Text = fmt.Sprintf("(%d bytes that are no text, in %s)", len(c.Blob)*3/4, c.URI)
		}
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, "\n"), nil
}

// Subscribe lets the agent watch resources of its own servers.
func (a *Agent) Subscribe(server, uri string) (*Resource, error) {
	var names []string
	for _, one := range a.served {
		if one.Name == server {
			return &Resource{s: a.s, name: server, uri: uri, use: func() (*mcpclient.Lease, error) {
				return a.s.Dial(context.Background(), one.Name, one.Server.Server)
			}}, nil
		}
		names = append(names, one.Name)
	}
	return nil, fmt.Errorf("there is no such server (%s): %w", strings.Join(names, ", "), fs.ErrNotExist)
}

// Subscribe lets a client watch resources of configured servers.
func (s *Servers) Subscribe(ctx context.Context, server, uri string) (*Resource, error) {
	lease, err := s.Use(ctx, server) // to report an unknown server at once
	if err != nil {
		return nil, err
	}
	lease.Release()
	return &Resource{
		s:    s,
		name: server,
		uri:  uri,
		use:  func() (*mcpclient.Lease, error) { return s.Use(context.Background(), server) },
	}, nil
}
