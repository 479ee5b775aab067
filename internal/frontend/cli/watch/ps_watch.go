package watch

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// psEvents is how many changes of tasks wait to be printed; a session whose changes are not
// read waits.
const psEvents = 256

// listing is what `drover ps` shows, as text.
type listing struct {
	ended, tree, all bool
	limit            int
}

// rows asks for the tasks of a listing.
func (a *app) rowsOf(ctx context.Context, l listing) (t taskTable, err error) {
	list, used := a.List, map[task.ID]task.Spend{}
	if l.tree {
		list = a.whole(used)
	}
	t = taskTable{listing: l, used: used}
	t.records, t.more, err = list(ctx, l.ended, l.all, l.limit)
	return t, err
}

// taskTable is the tasks of a listing.
type taskTable struct {
	listing
	records []task.Record
	used    map[task.ID]task.Spend
	more    bool
}

// text is the table at this moment.
func (a *app) tableText(t taskTable, columns int) []byte {
	if len(t.records) == 0 {
		return []byte(noTasks)
	}
	records, depth := t.records, make([]int, len(t.records))
	if t.tree {
		records, depth = family(records)
	}
	rows := a.taskRows(records, depth, t.all)
	if t.tree {
		spendColumns(rows, records, t.used)
	}
	colour := ofTasks(rows, records)
	if !a.Colored() {
		colour = nil
	}
	text := console.LayOut(rows, columns, colour)
	if line := task.CloudSessions(records); line != "" {
		text = append(text, line+"\n"...)
	}
	return text
}

// watchTasks shows a listing as it changes: in place on a terminal, else a line for each
// change, until the user leaves or ctx ends.
func (a *app) watchTasks(ctx context.Context, l listing, asJSON bool) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	if asJSON || a.OpenTerminal == nil || !a.IsTerminal(a.Stdout) {
		return a.printEvents(ctx, &group, l, asJSON)
	}
	wake := make(chan struct{}, 1)
	group.Go(func() {
		_ = a.FollowSessions(ctx, l.all, console.WatchTick, func(ctx context.Context, s console.Session) { // it ends with ctx
			defer console.WakeUp(wake) // its files give another listing
			a.eachEvent(ctx, s, func(e task.Event) bool {
				console.WakeUp(wake)
				return true
			})
		})
	})
	var shown taskTable
	return a.Draw(ctx, console.Drawing{
		Changed: wake,
		Look: func(ctx context.Context) (err error) {
			shown, err = a.rowsOf(ctx, l)
			return err
		},
		View: func(columns int) console.Frame {
			lines := console.SplitLines(string(a.tableText(shown, columns)), columns)
			if shown.more {
				lines = append(lines, console.Clip(fmt.Sprintf("the newest %d tasks are shown", len(shown.records)), columns))
			}
			return console.Frame{Lines: lines, Ticks: slices.ContainsFunc(shown.records, func(r task.Record) bool {
				return !r.Status.Terminal()
			})}
		},
	})
}

// eachEvent calls f with the live tasks of a session, as events without a number, and then
// with each change, until f returns false, the session ends or ctx does. A change that comes
// at that moment may be told twice, and none is missed.
func (a *app) eachEvent(ctx context.Context, s console.Session, f func(task.Event) bool) {
	api, done, err := s.Open(ctx)
	if err != nil {
		return // it has just ended, or is found again
	}
	defer done()
	state, err := api.State(ctx, control.StateRequest{})
	if err != nil {
		return
	}
	page, err := api.List(ctx, control.ListRequest{})
	if err != nil {
		return
	}
	for _, r := range slices.Backward(page.Tasks) {
		if !f(task.Event{At: r.CreateTime, Task: r}) {
			return
		}
	}
	for e, err := range api.Events(ctx, state.Seq) {
		if err != nil || !f(e) {
			return
		}
	}
}

// printEvents prints a line for each live task, and then one for each change.
func (a *app) printEvents(ctx context.Context, group *sync.WaitGroup, l listing, asJSON bool) error {
	ctx, stop := console.WhileRead(ctx, a.Stdout)
	defer stop()
	events := make(chan task.Event, psEvents)
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer group.Wait()
	defer cancel()
	group.Go(func() {
		failed <- a.FollowSessions(ctx, l.all, console.WatchTick, func(ctx context.Context, s console.Session) {
			a.eachEvent(ctx, s, func(e task.Event) bool {
				select {
				case events <- e:
					return true
				case <-ctx.Done():
					return false
				}
			})
		})
	})
	for {
		select {
		case e := <-events:
			line, err := a.eventLine(e, asJSON)
			if err == nil {
				_, err = a.Stdout.Write(line)
			}
			if err != nil {
				return err
			}
		case err := <-failed:
			return err
		}
	}
}

// eventLine is a change as a line; empty: it is of no interest to people.
func (a *app) eventLine(e task.Event, asJSON bool) ([]byte, error) {
	if asJSON {
		return console.Marshal(e, "")
	}
	if e.Verb == task.Report || e.Verb == task.Save {
		return nil, nil
	}
	var b bytes.Buffer
	r := e.Task
	verb := string(e.Verb)
	if verb == "" {
		verb = "listed"
	}
	fmt.Fprintf(&b, "%s  %s  %s  %s  %s", e.At.Local().Format(time.TimeOnly), console.Cell(string(r.ID), 40),
		console.Cell(verb, 20),
		console.Cell(console.Status(a.Now(), r), 60), console.Cell(r.Name, console.NameChars))
	if r.Status.Terminal() {
		fmt.Fprintf(&b, "  %s", console.Ending(r))
	}
	fmt.Fprintf(&b, "  %s\n", doing(r))
	return b.Bytes(), nil
}
