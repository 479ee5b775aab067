package web

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/drover-dev/drover/internal/api/control"
)

// Check is a check of the doctor.
type Check struct {
	Name, Level string // ok, warning or error
	Detail, Fix string
}

// settingsPage is the page of the doctor, the workers, and links to the settings of live sessions.
func (s *Server) settingsPage(w http.ResponseWriter, r *http.Request) {
	sessions, err := s.Sessions(r.Context(), true)
	data := map[string]any{"Checks": s.Checks(r.Context())}
	if err != nil {
		data["Problem"] = err.Error()
	}
	devices, err := s.Devices.List()
	data["Devices"] = devices
	if err != nil {
		data["NoDevices"] = err.Error()
	}
	data["This"], _ = s.access.device(r)
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
	s.page(w, "settings.html", data)
}

// sessionPage is the page of the settings and the environment of a session.
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
		data["Problem"] = err.Error() // for example of an ended session
	}
	s.page(w, "session.html", data)
}
