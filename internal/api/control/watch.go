package control

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// WatchRequest requests the conversation of a session.
type WatchRequest struct {
	After Mark `json:"after"` // the known position; the zero mark: everything that is kept
	// Still requests only the existing pieces. Such a caller is not attached.
	Snapshot bool `json:"snapshot,omitempty"`
}

// Mark is a position in a conversation as one host shows it: a piece, and how many bytes of its
// text are known. It is valid for that host only.
type Mark struct {
	N   int64 `json:"n"`
	Len int   `json:"len"`
}

// String returns the mark in the form of an address, such as 12.40.
func (m Mark) String() string { return fmt.Sprintf("%d.%d", m.N, m.Len) }

// ParseMark parses the result of String. The empty text is the zero mark.
func ParseMark(text string) (Mark, error) {
	if text == "" {
		return Mark{}, nil
	}
	number, length, _ := strings.Cut(text, ".")
	n, bad := strconv.ParseInt(number, 10, 64)
	l, worse := strconv.ParseInt(length, 10, 32)
	if bad != nil || worse != nil || n < 0 || l < 0 {
		return Mark{}, Refuse(Invalid, fmt.Sprintf("after %.40q: not a mark such as 12.40", text),
			"give the id of the last piece you have, or leave it out")
	}
	return Mark{N: n, Len: int(l)}, nil
}

// PieceKind is the kind of a [Piece].
type PieceKind string

// The kinds of pieces.
const (
	OpenPiece  PieceKind = "open"  // the first of a stream: N is the number of the newest piece
	GapPiece   PieceKind = "gap"   // earlier pieces are no longer kept
	BeginPiece PieceKind = "begin" // a turn begins: Origin, and its prompt as Text
	MailPiece  PieceKind = "mail"  // the agent received mail: Origin, Text
	TextPiece  PieceKind = "text"  // text of the agent, as it comes
	// ThinkingPiece is thinking of the agent, as it comes.
	ThinkingPiece PieceKind = "thinking"
	CallPiece     PieceKind = "call"   // it calls a tool: Tool, Call, and the input as Text
	ResultPiece   PieceKind = "result" // result of the tool: Tool, Call, Text; Error, if it was denied or failed
	NotePiece     PieceKind = "note"   // about the conversation, such as a compaction
	EndPiece      PieceKind = "end"    // the turn has ended: Error if it failed; Running
	TaskPiece     PieceKind = "task"   // a change of a task, for people: Event
)

// Piece is a part of a conversation. The text of the newest piece may grow: then it is sent
// again with the same number and the new part of its text.
type Piece struct {
	N      int64     `json:"n"`              // 1 for the first of a host
	From   int       `json:"from,omitempty"` // number of bytes of its text before this part
	Kind   PieceKind `json:"kind"`
	At     time.Time `json:"at"`
	Origin string    `json:"origin,omitempty"` // of a turn or of mail; empty: a user's prompt
	Text   string    `json:"text,omitempty"`
	Cut    int       `json:"cut,omitempty"` // number of bytes that are left out at the end of the text
	Tool   string    `json:"tool,omitempty"`
	Call   string    `json:"call_id,omitempty"`
	Error  string    `json:"error,omitempty"`

	Running int         `json:"running,omitempty"` // background tasks that the end of a turn leaves running
	Event   *task.Event `json:"event,omitempty"`
}

// Mark returns the position after the piece.
func (p Piece) Mark() Mark { return Mark{N: p.N, Len: p.From + len(p.Text)} }

// pieceEvent is the name of a piece in a stream.
const pieceEvent = "piece"

// watch serves GET /v1/watch. As with events, a slow reader delays only its own connection.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	var req WatchRequest
	if err := ask(r, &req); err != nil {
		return err
	}
	after, err := ParseMark(r.URL.Query().Get("after"))
	if err != nil {
		return err
	}
	req.After = after
	st := newStream(w)
	begun := false
	for p, err := range s.api.Watch(r.Context(), req) {
		if err != nil && !begun {
			return err // it was refused
		}
		if !begun {
			begun = true
			defer st.begin(w, s.heartbeat)()
		}
		switch {
		case err == nil:
			err = st.piece(p, after)
		case r.Context().Err() == nil:
			_ = st.fail(err)
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// piece writes a piece. The first of a stream has no content, so its ID is the previous
// position of the reader.
func (st *stream) piece(p Piece, before Mark) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if p.Kind != OpenPiece {
		before = p.Mark()
	}
	return st.event(before.String(), pieceEvent, p)
}

// Watch implements [API]. Like Events it does not reconnect.
func (c *Client) Watch(ctx context.Context, req WatchRequest) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // breaks the connection when the reader stops
		path := "/v1/watch?after=" + req.After.String()
		if req.Snapshot {
			path += "&snapshot=true"
		}
		body, err := c.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(Piece{}, err)
			return
		}
		defer body.Close()
		for f, err := range frames(body) {
			var p Piece
			switch {
			case err != nil:
				err = c.broken(ctx, err)
			case f.event == errorEvent:
				_, err = decodeEvent(f)
			case f.event != pieceEvent:
				continue // of a newer server
			default:
				if err = json.Unmarshal(f.data, &p); err != nil {
					err = fmt.Errorf("read piece %.20q: %w", f.id, err)
				}
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}
