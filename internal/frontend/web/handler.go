package web

import (
	"io/fs"
	"net/http"
)

// handler answers all requests.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	a := s.access
	mux.HandleFunc("GET /{$}", s.home)
	mux.HandleFunc("POST /pair", s.pair)
	mux.HandleFunc("POST /link", a.writer(s.link))
	mux.HandleFunc("GET /stream", a.reader(s.stream))
	mux.HandleFunc("POST /act/{act}", a.writer(s.act))
	for _, name := range []string{"page.js", "pair.js", "page.css", "icon.svg"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { s.asset(w, r, name) })
	}
	return a.guard(mux)
}

// asset is a file of the page: the same for all, and without anything of the user.
func (s *Server) asset(w http.ResponseWriter, r *http.Request, name string) {
	sub, err := fs.Sub(assets, "assets")
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, sub, name)
}

// home is the first page; a browser that is not paired gets one that pairs it.
func (s *Server) home(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if !s.access.reads(r) {
		w.WriteHeader(http.StatusUnauthorized)
		_ = s.views.t.ExecuteTemplate(w, "pair.html", nil) // a client that has gone needs no page
		return
	}
	// The number first: what changes after it is sent again, and changes nothing.
	tree, number := s.board.all(treeList)
	needs, at := s.board.all(needsList)
	_ = s.views.t.ExecuteTemplate(w, "page.html", map[string]any{"Needs": shown(needs), "Tree": shown(tree),
		"Mark": s.board.mark(min(number, at)), "Version": s.Version})
}
