package web

import (
	"github.com/drover-dev/drover/internal/project/todo"
	"net/http"
	"strings"
	"time"
)

// TodoList is a to-do list of a session or a folder.
type TodoList struct {
	Name    string // of the list
	Of      string // the session or the folder, for people
	Changed time.Time
	Chosen  bool // it is shown, and has Items
	Items   []todo.Item
	Damaged int // number of unreadable to-dos
}

// todos is the page of the to-do lists, one of them as a list and as a graph.
func (s *Server) todos(w http.ResponseWriter, r *http.Request) {
	lists, err := s.Todos(r.Context(), r.URL.Query().Get("list"))
	data := map[string]any{"Lists": lists}
	if err != nil {
		data["Problem"] = err.Error()
	}
	for _, l := range lists {
		if !l.Chosen {
			continue
		}
		data["List"] = l
		if len(l.Items) > 0 {
			data["Graph"] = graphOf(l)
		}
	}
	s.page(w, "todos.html", data)
}

// graphOf is a list as a graph of dependencies.
func graphOf(l TodoList) graph {
	nodes := make([]node, len(l.Items))
	for n, i := range l.Items {
		o := node{ID: i.ID.String(), Title: line(i.ID.String()+" "+i.Title(), 200), Class: "pending",
			Note: line(i.Description, 400), State: strings.ReplaceAll(string(i.Status), "_", " ")}
		for _, id := range i.BlockedBy {
			o.After = append(o.After, id.String())
		}
		switch i.Status {
		case todo.Completed:
			o.Class = "completed"
		case todo.InProgress:
			o.Class = "running"
		}
		if i.Owner != "" {
			o.State += " · " + line(i.Owner, 20)
		}
		nodes[n] = o
	}
	return laid("To-dos", nodes)
}
