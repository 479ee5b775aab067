package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/web"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/project/todo"
)

// pageUsed yields the calls of models that the sessions of all projects have kept. A call whose
// price was not known when it was made is priced by what the settings say now.
func (b servers) pageUsed(ctx context.Context, since time.Time, yield func(web.Call)) error {
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	table, _ := console.PriceTable(set.Models) // drover models reports its errors
	projects, err := b.root.Projects()
	if err != nil {
		return err
	}
	unread := 0
	for _, p := range projects {
		sessions, err := p.Sessions()
		if err != nil {
			return err
		}
		for _, s := range sessions {
			if err := ctx.Err(); err != nil {
				return err
			}
			skipped, err := usage.Read(filepath.Join(s.Dir(), usage.FileName), func(c usage.Call) {
				if c.Time.Before(since) {
					return
				}
				if usd, known := table.Cost(c.Model, c.Usage); c.USD == nil && known {
					c.USD = &usd
				}
				yield(web.Call{Time: c.Time, Model: c.Model, Input: c.InputTokens + c.CacheReadTokens + c.CacheWriteTokens,
					Output: c.OutputTokens, USD: c.USD})
			})
			if err != nil || skipped > 0 {
				unread++
			}
		}
	}
	if unread > 0 {
		return fmt.Errorf("the calls of %d sessions cannot be read in full (drover stats names them)", unread)
	}
	return nil
}

// mostTodoLists bounds how many to-do lists the page shows, those that were changed last.
const mostTodoLists = 30

// pageTodos are the to-do lists of all folders and sessions, of which the named one, else the
// first, has its to-dos.
func (b servers) pageTodos(ctx context.Context, name string) ([]web.TodoList, error) {
	names, err := b.root.Below().Names(filepath.Dir(b.root.Todos("any")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list to-do lists: %w", err)
	}
	of, err := b.todosOf()
	if err != nil {
		return nil, err
	}
	var lists []web.TodoList
	for _, n := range names {
		if info, err := b.root.Below().Lstat(b.root.Todos(n)); err == nil && info.IsDir() {
			lists = append(lists, web.TodoList{Name: n, Of: cmp.Or(of[n], n), Changed: info.ModTime()})
		}
	}
	slices.SortStableFunc(lists, func(x, y web.TodoList) int { return y.Changed.Compare(x.Changed) })
	lists = lists[:min(len(lists), mostTodoLists)]
	chosen := max(slices.IndexFunc(lists, func(l web.TodoList) bool { return l.Name == name }), 0)
	if len(lists) == 0 {
		return nil, nil
	}
	l := &lists[chosen]
	l.Chosen = true
	read, err := todo.At(b.root.Todos(l.Name), false).List(ctx)
	l.Damaged = len(read.Problems)
	l.Items = read.Items
	return lists, err
}

// todosOf says by the name of a to-do list whose it is: of a folder or a session.
func (b servers) todosOf() (map[string]string, error) {
	projects, err := b.root.Projects()
	if err != nil {
		return nil, err
	}
	of := map[string]string{}
	for _, p := range projects {
		of[filepath.Base(p.Dir())] = p.Folder()
		sessions, err := p.Sessions()
		if err != nil {
			return nil, err
		}
		for _, s := range sessions {
			of[string(s.ID())] = p.Folder() + " " + string(s.ID())
		}
	}
	return of, nil
}

// pageChecks are what the doctor finds, for the page.
func (b servers) pageChecks(ctx context.Context) []web.Check {
	var out []web.Check
	for _, f := range doctor(b).looked(ctx) {
		out = append(out, web.Check{Name: f.Check, Level: string(f.Level), Detail: f.Detail, Fix: f.Fix})
	}
	return out
}

// pageHubTime limits what the page asks of a hub.
const pageHubTime = 2 * time.Second

// pageWorkers are the workers of the hub, for the page.
func (b servers) pageWorkers(ctx context.Context) ([]fleetwire.Worker, error) {
	ctx, cancel := context.WithTimeout(ctx, pageHubTime)
	defer cancel()
	return b.folder.Workers(ctx)
}
