package web

import (
	"io/fs"
	"net/http"
)

// handler answers all requests.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	a := s.access
	mux.HandleFunc("GET /{$}", s.paired(s.home))
	mux.HandleFunc("POST /pair", s.pair)
	mux.HandleFunc("POST /link", a.writer(s.link))
	mux.HandleFunc("POST /logout", a.reader(s.logout))
	mux.HandleFunc("POST /revoke", a.writer(s.revoke))
	mux.HandleFunc("GET /stream", a.reader(s.stream))
	mux.HandleFunc("POST /act/{act}", a.writer(s.act))
	mux.HandleFunc("GET /task/{session}/{task}", s.paired(s.taskPage))
	mux.HandleFunc("GET /follow/{session}/{task}", a.reader(s.follow))
	mux.HandleFunc("GET /output/{session}/{task}", a.reader(s.output))
	mux.HandleFunc("GET /search/{session}/{task}", a.reader(s.search))
	mux.HandleFunc("GET /part/{part}/{session}/{task}", a.reader(s.detail))
	mux.HandleFunc("GET /conversation/{session}", s.paired(s.conversationPage))
	mux.HandleFunc("GET /use", s.paired(s.use))
	mux.HandleFunc("GET /todos", s.paired(s.todos))
	mux.HandleFunc("GET /settings", s.paired(s.settingsPage))
	mux.HandleFunc("GET /session/{session}", s.paired(s.sessionPage))
	mux.HandleFunc("GET /watch/{session}", a.reader(s.watch))
	for _, name := range []string{"common.js", "page.js", "task.js", "diff.js", "conversation.js", "again.js",
		"session.js", "settings.js", "use.js", "pair.js", "page.css", "icon.svg"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { s.asset(w, r, name) })
	}
	return a.guard(mux)
}

// asset answers with a static file.
func (s *Server) asset(w http.ResponseWriter, r *http.Request, name string) {
	sub, err := fs.Sub(assets, "assets")
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, sub, name)
}

// paired answers an unpaired browser with the page that pairs it.
func (s *Server) paired(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if !s.access.reads(r) {
			w.WriteHeader(http.StatusUnauthorized)
			s.page(w, "pair.html", nil)
			return
		}
		next(w, r)
	}
}

// page answers with a page.
func (s *Server) page(w http.ResponseWriter, name string, data any) {
	_ = s.views.t.ExecuteTemplate(w, name, data) // fails only if the client has left
}

// home is the page of all sessions.
func (s *Server) home(w http.ResponseWriter, _ *http.Request) {
	tree, number := s.board.all(treeList)
	needs, at := s.board.all(needsList)
	// With the lower number some pieces are sent again, which changes nothing.
	s.page(w, "page.html", map[string]any{"Needs": shown(needs), "Tree": shown(tree),
		"Mark": s.board.mark(min(number, at)), "Version": s.Version})
}
