package monitor_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/drover-dev/drover/internal/driver/monitor"
)

// pages is a resource whose text the test gives.
type pages chan string

func (p pages) Events(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for {
			select {
			case text, open := <-p:
				if !open {
					return
				}
				var err error
				if text == "broken" {
					err = errors.New("the server has gone")
				}
				if !yield(text, err) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (p pages) client() monitor.Client {
	return monitor.Client{Subscribe: func(context.Context, string, string) (monitor.Subscription, error) { return p, nil }}
}

// Of a resource what is new is told, and what it holds at the beginning is not new.
func TestResource(t *testing.T) {
	p := make(pages)
	x := watch(t, p.client(), monitor.Watch{Server: "s", URI: "log:x", Match: "^[a-z]"})
	for _, text := range []string{"old\n", "old\none\n", "one\n2\n", "old\none\ntwo"} {
		p <- text
	}
	x.hears("one", "old", "two")
	if got := x.Printed(); got != "one\n2\nold\ntwo\n" {
		t.Errorf("the output is %q", got)
	}
	close(p)
	if o := x.wait(); o.err != nil || o.res.Text != "The server has no more to say. 3 events in 4 lines." {
		t.Errorf("%q, %v", o.res.Text, o.err)
	}
}

func TestResourceBroken(t *testing.T) {
	p := make(pages)
	x := watch(t, p.client(), monitor.Watch{Server: "s", URI: "log:x"})
	p <- "broken"
	if o := x.wait(); o.err == nil {
		t.Errorf("a server that has gone is a good end: %+v", o.res)
	}
}
