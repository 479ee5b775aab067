package web

import (
	"cmp"
	"net/http"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// conversationPage is the conversation with the main agent of a session.
func (s *Server) conversationPage(w http.ResponseWriter, r *http.Request) {
	api, of, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	i := of.Info()
	var kept control.Messages // of an ended session
	if !i.Live {
		// A session without a main agent has none.
		kept, _ = api.Messages(r.Context(), control.MessagesRequest{Ref: string(i.Session)})
	}
	s.page(w, "conversation.html", map[string]any{"Info": i, "Kept": kept,
		"Title": line(cmp.Or(i.Title, string(i.Session)), 80)})
}

// said is a piece of a conversation. The page shows its texts as text, not as HTML.
type said struct {
	N     int64  `json:"n"`
	From  bool   `json:"from"` // the text continues the piece on the page
	Kind  string `json:"kind"`
	Who   string `json:"who,omitempty"`
	Text  string `json:"text,omitempty"`
	Cut   int    `json:"cut,omitempty"`
	Error string `json:"error,omitempty"`
}

// watch sends a conversation as it grows. The page counts as attached, like a terminal.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	api, _, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	after, err := control.ParseMark(r.Header.Get("Last-Event-ID"))
	if err != nil {
		answer(w, nil, err)
		return
	}
	out, free := s.begin(w, r)
	if out == nil {
		return
	}
	defer free()
	ctx := r.Context()
	for p, err := range api.Watch(ctx, control.WatchRequest{After: after}) {
		if err != nil {
			break
		}
		if p.Kind == control.TaskPiece {
			continue // the page has the tasks
		}
		v := said{N: p.N, From: p.From > 0, Kind: string(p.Kind), Text: excerpt.Prose(p.Text), Cut: p.Cut,
			Who: excerpt.ExactLine(cmp.Or(p.Tool, p.Origin)), Error: excerpt.ExactLine(p.Error)}
		if p.Kind == control.CallPiece {
			v.Text = excerpt.Call([]byte(p.Text), p.Cut)
		}
		if out.Send(control.Mark{N: p.N, Len: p.From + len(p.Text)}.String(), "piece", v) != nil {
			return
		}
	}
	if ctx.Err() == nil {
		_ = out.Send("", "end", struct{}{}) // the page says that the session has ended
	}
}
