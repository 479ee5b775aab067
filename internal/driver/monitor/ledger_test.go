package monitor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/task"
)

func cutAll(chunks ...string) (out []string) {
	l := lines{each: func(b []byte) { out = append(out, string(b)) }}
	for _, c := range chunks {
		l.feed([]byte(c))
	}
	l.flush()
	return out
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", lineBytes)
	for name, c := range map[string]struct{ in, want []string }{
		"plain":    {[]string{"a\nb\n"}, []string{"a", "b"}},
		"parts":    {[]string{"a", "b\n", "\nc"}, []string{"ab", "", "c"}},
		"long":     {[]string{long + "yz\nb"}, []string{long, "b"}},
		"longpart": {[]string{long[:10], long[10:], "yz", "\nb\n"}, []string{long, "b"}},
		"none":     {[]string{""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cutAll(c.in...); !slices.Equal(got, c.want) {
				t.Errorf("got %.60q, want %.60q", got, c.want)
			}
		})
	}
}

// However a text comes, its lines are the same.
func FuzzLines(f *testing.F) {
	f.Add("a\n\nb", 1)
	f.Add(strings.Repeat("y", lineBytes+3)+"\nz\n", 1000)
	f.Fuzz(func(t *testing.T, text string, size int) {
		size = max(1, min(size, len(text)))
		var chunks []string
		for c := range slices.Chunk([]byte(text), size) {
			chunks = append(chunks, string(c))
		}
		want := strings.Split(text, "\n")
		if last := len(want) - 1; want[last] == "" {
			want = want[:last]
		}
		for i, w := range want {
			want[i] = w[:min(len(w), lineBytes)]
		}
		if got := cutAll(chunks...); !slices.Equal(got, want) {
			t.Errorf("in parts of %d: got %.100q, want %.100q", size, got, want)
		}
	})
}

// Whatever comes and however often the owner cannot be told, every event is told
// or counted, notifications are short, and not more come than may.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l ledger
		start := time.Unix(1_000_000, 0)
		now, sent := start, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				for range rapid.IntRange(1, 80).Draw(t, "lines") {
					l.add(rapid.StringN(1, 40, 2000).Draw(t, "text"), rapid.Bool().Draw(t, "event"), true, now)
				}
			case 1:
				if at := l.due(); at.After(now) {
					now = at
				}
			case 2:
				now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond)
			}
			if n, ok := l.take(now); ok {
				if text := n.text(); len(text) > notificationBytes+eventBytes+100 || text == "" {
					t.Fatalf("a notification of %d bytes", len(text))
				}
				if rapid.Bool().Draw(t, "full") {
					l.unsent(n, now)
				} else {
					l.sent(n, now)
					sent++
				}
			}
			waiting := int64(len(l.next.lines)) + l.next.more
			if c := l.count; c.Notified+c.Dropped+waiting != c.Events || c.Events > c.Lines {
				t.Fatalf("counted %+v, and %d wait", c, waiting)
			}
			if most := notificationBurst + int(now.Sub(start)/notificationEvery); sent > most {
				t.Fatalf("%d notifications within %s", sent, now.Sub(start))
			}
			if waiting > 0 && l.due().IsZero() {
				t.Fatal("events wait for ever")
			}
		}
		l.lose()
		if c := l.count; c.Notified+c.Dropped != c.Events {
			t.Fatalf("counted %+v in the end", c)
		}
	})
}

// sayer is a host that notes when it is told something.
type sayer struct {
	task.Host // what a report must not use panics

	start time.Time
	said  []string
	count task.MonitorCount
	held  chan struct{} // nil: the task is not paused
}

func (s *sayer) Record() task.Record      { return task.Record{Owner: "s00000000"} }
func (s *sayer) Progress(p task.Progress) { s.count = *p.Monitor }

func (s *sayer) WaitWhilePaused(ctx context.Context) error {
	if s.held != nil {
		select {
		case <-s.held:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *sayer) Tell(_ context.Context, _ task.MessageKind, text string, _ task.Priority) error {
	s.said = append(s.said, fmt.Sprintf("%s: %s", time.Since(s.start), strings.ReplaceAll(text, "\n", ",")))
	return nil
}

// Events that come close together are told together, and nothing runs while
// nothing comes.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &sayer{start: time.Now()}
		r := newReport(t.Context(), h, nil)
		r.line([]byte("a"))
		time.Sleep(150 * time.Millisecond)
		r.line([]byte("b"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if r.telling {
			t.Error("somebody waits although there is nothing to tell")
		}
		for i := range 100 {
			r.line([]byte(fmt.Sprint(i)))
			time.Sleep(90 * time.Millisecond) // never at the very moment of a notification
		}
		r.close(true)
		want := []string{"200ms: a,b", "10.35s: 0,1,2", "10.62s: 3,4,5", "10.89s: 6,7,8", "11.16s: 9,10,11", "11.43s: 12,13,14", "11.7s: 15,16,17"}
		if len(h.said) < len(want) || !slices.Equal(h.said[:len(want)], want) {
			t.Errorf("said %q", h.said)
		}
		if n := len(h.said); n < len(want)+7 || n > len(want)+8 { // one a second from there on
			t.Errorf("%d notifications: %q", n, h.said)
		}
		if want := (task.MonitorCount{Lines: 102, Events: 102, Notified: 102}); h.count != want {
			t.Errorf("counted %+v", h.count)
		}
	})
}

// A paused task holds its notifications back and loses nothing.
func TestPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &sayer{start: time.Now(), held: make(chan struct{})}
		r := newReport(t.Context(), h, nil)
		r.line([]byte("a"))
		time.Sleep(time.Minute)
		r.line([]byte("b"))
		synctest.Wait()
		if len(h.said) > 0 {
			t.Errorf("said %q", h.said)
		}
		close(h.held)
		time.Sleep(time.Second)
		r.close(false)
		if want := []string{"1m0s: a", "1m0.2s: b"}; !slices.Equal(h.said, want) {
			t.Errorf("said %q", h.said)
		}
	})
}
