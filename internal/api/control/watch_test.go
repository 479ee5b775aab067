package control

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// TestWatch reads a conversation in process and over the socket alike.
func TestWatch(t *testing.T) {
	seed := func() *fake {
		f := newFake()
		f.pieces = []Piece{{N: 1, Kind: BeginPiece, Text: "go", At: at(1)}, {N: 2, Kind: TextPiece, Text: "a<b>\u2028", At: at(2)},
			{N: 3, Kind: CallPiece, Tool: "Bash", Call: "c", Text: "{}", Cut: 7, At: at(3)}, {N: 4, Kind: EndPiece, Error: "broken", At: at(4)}}
		return f
	}
	for _, c := range []struct {
		name string
		api  func(*testing.T, *fake) API
	}{
		{"process", func(_ *testing.T, f *fake) API { return f }},
		{"socket", func(t *testing.T, f *fake) API { return serve(t, NewServer(f)).client }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := seed()
			api := c.api(t, f)
			var got []Piece
			for p, err := range api.Watch(t.Context(), WatchRequest{After: Mark{N: 1, Len: 2}, Snapshot: true}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p)
			}
			if len(got) != 4 || got[0].Kind != OpenPiece || got[0].N != 4 || got[1] != f.pieces[1] || got[2] != f.pieces[2] || got[3] != f.pieces[3] {
				t.Errorf("pieces %+v", got)
			}

			// Who has enough is let go, and who is told an error gets it.
			for range api.Watch(t.Context(), WatchRequest{}) {
				break
			}
			ctx, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			enough := errors.New("enough")
			var last error
			for p, err := range api.Watch(ctx, WatchRequest{}) {
				if last = err; p.Kind == EndPiece {
					leave(enough)
				}
			}
			recv(t, f.unwatched, "end of the watch")
			if last != nil && !errors.Is(last, enough) {
				t.Errorf("left with %v", last)
			}
			seen := make(chan struct{})
			go func() { <-seen; f.add(task.Record{ID: "baaaaaaaa"}) }()
			last = nil
			for p, err := range api.Watch(t.Context(), WatchRequest{}) {
				if last = err; p.Kind == EndPiece {
					close(seen)
				}
			}
			var e *Error
			if !errors.As(last, &e) || e.Code != Conflict || e.Message != "enough" {
				t.Errorf("ended with %v", last)
			}
			f.mu.Lock()
			f.refused = &Error{Code: Unavailable, Message: "the session is closing", NotAccepted: true}
			f.mu.Unlock()
			for p, err := range api.Watch(t.Context(), WatchRequest{}) {
				if !Refused(err) || !strings.Contains(err.Error(), "closing") {
					t.Errorf("refused with %v, piece %+v", err, p)
				}
			}
		})
	}
}

func TestMark(t *testing.T) {
	for _, m := range []Mark{{}, {N: 1}, {N: 1 << 40, Len: 64 << 10}} {
		if got, err := ParseMark(m.String()); err != nil || got != m {
			t.Errorf("%s reads as %v, %v", m, got, err)
		}
	}
	if got, err := ParseMark(""); err != nil || got != (Mark{}) {
		t.Errorf("nothing reads as %v, %v", got, err)
	}
	for _, bad := range []string{"x", "1", "1.", ".1", "-1.0", "1.-1", "1.2.3", "1.99999999999"} {
		if got, err := ParseMark(bad); err == nil {
			t.Errorf("%q reads as %v", bad, got)
		}
	}
	w := serve(t, NewServer(newFake()))
	if resp, body := w.get(t, "/v1/watch?after=x"); resp.StatusCode != 400 || !strings.Contains(body, "not a mark") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}
