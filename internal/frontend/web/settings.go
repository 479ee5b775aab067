package web

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/drover-dev/drover/internal/api/control"
)

// Check is one thing that the doctor looked at.
type Check struct {
	Name, Level string // of the levels ok, warning and error
	Detail, Fix string
}

// Worker is a process on some machine that takes tasks of sessions elsewhere.
type Worker struct {
	Name, State, System, Version string
	Labels                       []string
	Tasks                        []string // that it does, for people
	Capacity                     int
}

// settingsPage is the page of what the doctor finds, of the workers, and of the live sessions with settings.
func (s *Server) settingsPage(w http.ResponseWriter, r *http.Request) {
	sessions, err := s.Sessions(r.Context(), true)
	data := map[string]any{"Checks": s.Checks(r.Context())}
	if err != nil {
		data["Problem"] = err.Error()
	}
	if s.Workers != nil {
		workers, err := s.Workers(r.Context())
		data["Workers"] = workers
		if err != nil {
			data["NoWorkers"] = err.Error()
		}
	}
	var infos []control.Info
	for _, one := range sessions {
		infos = append(infos, one.Info())
	}
	data["Sessions"] = infos
	_ = s.views.t.ExecuteTemplate(w, "settings.html", data) // a client that has gone needs no page
}

// sessionPage is the page of what a session works with, and of its settings.
func (s *Server) sessionPage(w http.ResponseWriter, r *http.Request) {
	api, of, done, ok := s.opened(w, r)
	if !ok {
		return
	}
	defer done()
	i := of.Info()
	data := map[string]any{"Info": i, "Title": line(cmp.Or(i.Title, string(i.Session)), 80),
		"Modes":   []string{"default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"},
		"Efforts": control.Efforts()}
	state, err := api.State(r.Context(), control.StateRequest{})
	if err == nil {
		data["Settings"] = state.Settings
	}
	env, missing := api.Environment(r.Context())
	if missing == nil {
		data["Environment"] = env
	}
	if err = errors.Join(err, missing); err != nil {
		data["Problem"] = err.Error() // an ended session has none
	}
	_ = s.views.t.ExecuteTemplate(w, "session.html", data) // as above
}
