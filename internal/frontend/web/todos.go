package web

import (
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
	Items   []Todo
	Damaged int // number of unreadable to-dos
}

// Todo is one to-do.
type Todo struct {
	ID, Title, Description string
	Status                 string // pending, in_progress or completed
	Owner                  string
	After                  []string // the to-dos that it waits for
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
		o := node{ID: i.ID, Title: line(i.ID+" "+i.Title, 200), Class: "pending", After: i.After,
			Note: line(i.Description, 400)}
		o.State = strings.ReplaceAll(i.Status, "_", " ")
		switch i.Status {
		case "completed":
			o.Class = "completed"
		case "in_progress":
			o.Class = "running"
		}
		if i.Owner != "" {
			o.State += " · " + line(i.Owner, 20)
		}
		nodes[n] = o
	}
	return laid("To-dos", nodes)
}
