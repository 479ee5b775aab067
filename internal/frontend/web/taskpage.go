package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// taskPage is the page of one task.
func (s *Server) taskPage(w http.ResponseWriter, r *http.Request) {
	api, of, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	rec, err := api.Get(r.Context(), r.PathValue("task"))
	if err != nil {
		answer(w, nil, err)
		return
	}
	s.page(w, "task.html", map[string]any{"Record": rec, "Agent": rec.Traits().Work == task.ByAgent,
		"Name": line(cmp.Or(rec.Name, rec.Description, string(rec.ID)), 80), "Info": of.Info(),
		"Asked": excerpt.Exact(cmp.Or(rec.Command, rec.Prompt, rec.Description)),
		"Head":  shown([]piece{{HTML: s.views.head(rec, s.Now())}})})
}

// detail answers with a part of the page of a task, which loads it when it is opened.
func (s *Server) detail(w http.ResponseWriter, r *http.Request) {
	api, _, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	ctx, ref := r.Context(), r.PathValue("task")
	var html string
	var err error
	switch r.PathValue("part") {
	case "messages":
		var m control.Messages
		if m, err = api.Messages(ctx, control.MessagesRequest{Ref: ref}); err == nil {
			html = s.views.text("messages", m)
		}
	case "changes":
		var d control.Diff
		if d, err = api.Diff(ctx, control.DiffRequest{Ref: ref, Stat: true}); err == nil {
			html = s.views.text("changes", d)
		}
	case "file":
		var f changedFile
		if f, err = changed(ctx, api, ref, r.URL.Query()); err == nil {
			html = s.views.text("file", f)
		}
	case "record":
		var rec task.Record
		if rec, err = api.Get(ctx, ref); err == nil {
			var data []byte
			if data, err = json.MarshalIndent(rec, "", "  "); err == nil {
				html = s.views.text("record", excerpt.Exact(string(data)))
			}
		}
	default:
		http.NotFound(w, r)
		return
	}
	answer(w, map[string]string{"html": html}, err)
}

// changedFile is a changed file with its lines.
type changedFile struct {
	control.DiffFile
	Digest string // of the whole change
}

// changed reads the lines of the file of a query, which has both names of a renamed one.
func changed(ctx context.Context, api control.API, ref string, q url.Values) (changedFile, error) {
	path := q.Get("path")
	paths := []string{path}
	if old := q.Get("old"); old != "" {
		paths = append(paths, old)
	}
	d, err := api.Diff(ctx, control.DiffRequest{Ref: ref, Paths: paths})
	if err != nil {
		return changedFile{}, err
	}
	for _, f := range d.Files {
		if f.Path == path {
			return changedFile{f, d.Digest}, nil
		}
	}
	return changedFile{}, &control.Error{Code: control.NotFound,
		Message: fmt.Sprintf("the change has no file %.200q now", path), Fix: "reload the page"}
}
