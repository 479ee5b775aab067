package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/httpserve"
	"github.com/drover-dev/drover/task"
)

// act is a request that changes something in a session.
type act struct {
	Session task.ID `json:"session"`
	Ref     string  `json:"ref"` // a task or a question

	Digest string          `json:"digest"` // of the shown question
	Allow  bool            `json:"allow"`
	Reason string          `json:"reason"`
	Text   string          `json:"text"`
	Input  json.RawMessage `json:"input"`
	Always string          `json:"always"`

	Settings control.ConfigureRequest `json:"settings"`

	Comments []control.LineComment `json:"comments"` // on the diff with the digest
}

// acts are the changes that a page can request, by the last element of their path.
func (s *Server) acts() map[string]func(context.Context, control.API, act) (any, error) {
	type does = func(context.Context, control.API, act) (any, error)
	return map[string]does{
		"decide": func(ctx context.Context, api control.API, a act) (any, error) {
			return nil, api.Decide(ctx, control.DecideRequest{ID: a.Ref, Digest: a.Digest, Always: a.Always,
				Reply: task.Reply{Allow: a.Allow, Reason: a.Reason, Text: a.Text, Input: a.Input}})
		},
		"stop": func(ctx context.Context, api control.API, a act) (any, error) {
			return api.Stop(ctx, control.StopRequest{Refs: []string{a.Ref}})
		},
		"send": func(ctx context.Context, api control.API, a act) (any, error) {
			return api.Send(ctx, control.SendRequest{Ref: a.Ref, Text: a.Text})
		},
		"configure": func(ctx context.Context, api control.API, a act) (any, error) {
			return api.Configure(ctx, a.Settings)
		},
		"comment": func(ctx context.Context, api control.API, a act) (any, error) {
			return api.Comment(ctx, control.CommentRequest{Ref: a.Ref, Digest: a.Digest, Comments: a.Comments})
		},
		"prompt": func(ctx context.Context, api control.API, a act) (any, error) {
			return nil, api.Prompt(ctx, control.PromptRequest{Text: a.Text})
		},
		"pause": func(ctx context.Context, api control.API, a act) (any, error) { return api.Pause(ctx, []string{a.Ref}) },
		"resume": func(ctx context.Context, api control.API, a act) (any, error) {
			return api.Resume(ctx, control.ResumeRequest{Ref: a.Ref, Prompt: a.Text})
		},
		"interrupt": func(ctx context.Context, api control.API, a act) (any, error) { return api.Interrupt(ctx, a.Ref) },
		"seen": func(ctx context.Context, api control.API, a act) (any, error) {
			return api.MarkSeen(ctx, []string{a.Ref})
		},
	}
}

// act makes the change of a request.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	do := s.acts()[r.PathValue("act")]
	if do == nil {
		http.NotFound(w, r)
		return
	}
	a, ok := read[act](w, r)
	if !ok {
		return
	}
	of, err := s.session(r.Context(), a.Session)
	if err == nil && r.PathValue("act") == "seen" && !of.Info().Live {
		if err = s.MarkSeen(r.Context(), of.Info(), []task.ID{task.ID(a.Ref)}); err == nil {
			s.board.readLeft(r.Context())
		}
		answer(w, nil, err)
		return
	}
	if err != nil {
		answer(w, nil, err)
		return
	}
	api, done, err := of.Open(r.Context())
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer done()
	v, err := do(r.Context(), api, a)
	answer(w, v, err)
}

// session finds a live or ended session of the user.
func (s *Server) session(ctx context.Context, id task.ID) (Session, error) {
	if f := s.board.find(id); f != nil {
		return f, nil
	}
	all, err := s.Sessions(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if one.Info().Session == id {
			return one, nil
		}
	}
	return nil, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("unknown session: %.40q", id),
		Fix: "it may have been removed: reload the page"}
}

// read decodes the body of a request, or answers that it cannot.
func read[T any](w http.ResponseWriter, r *http.Request) (v T, ok bool) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", mostBody))
		} else {
			refuse(w, http.StatusBadRequest, fmt.Sprintf("the request cannot be read: %v", err))
		}
		return v, false
	}
	return v, true
}

// answer answers with the result of a session.
func answer(w http.ResponseWriter, v any, err error) {
	if e := control.AsError(err); e != nil {
		status := map[control.Code]int{control.NotFound: http.StatusNotFound, control.Ambiguous: http.StatusConflict,
			control.Invalid: http.StatusBadRequest, control.TooLarge: http.StatusRequestEntityTooLarge,
			control.Conflict: http.StatusConflict, control.Unavailable: http.StatusServiceUnavailable}[e.Code]
		if status == 0 {
			status = http.StatusInternalServerError
		}
		refuse(w, status, e.Error())
		return
	}
	if v == nil {
		v = struct{}{}
	}
	reply(w, v)
}

func reply(w http.ResponseWriter, v any) { httpserve.JSON(w, http.StatusOK, v) }

func refuse(w http.ResponseWriter, status int, why string) {
	httpserve.JSON(w, status, map[string]string{"error": why})
}
