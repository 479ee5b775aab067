// Package panel is the list of tasks: a tree with their states, the output of one of them,
// and the actions on them.
//
// A [State] takes records and keys, and returns an [Action] for the caller to carry out;
// it does no I/O and gets the time as an argument. Ended tasks stay for [Grace], and while
// they are chosen or their conversation is open.
package panel

import (
	"cmp"
	"slices"
	"time"

	"github.com/drover-dev/drover/task"
)

// Grace is how long an ended task is shown after its end, or after it was looked at last.
const Grace = 30 * time.Second

// State is the tasks of a session, and what the user looks at. Make one with [New].
type State struct {
	records map[task.ID]task.Record
	evict   map[task.ID]time.Time // when an ended task leaves the list; a held task stays

	chosen task.ID // the cursor; empty: none
	held   task.ID // its conversation is open
	All    bool    // ended tasks are shown, however old
	armed  task.ID // pressing the key again stops it
	armedX time.Time

	rows    []Row // as they were put in order last
	stale   bool
	rowsTil time.Time // when the next of them goes

	tail Tail
	note string

	sum    Summary // of the records as they are, if summed
	summed bool
}

// Summary is the state of the tasks for the screens outside of the panel.
type Summary struct {
	Pill  string // what runs in the background; see [task.PillLabel]
	Needs bool   // the only background task waits for the user

	// Waits are the tasks that the main agent waits for, and that can be moved to the
	// background, oldest first; Foreground is the newest, without an ID if Waits is empty.
	Waits      []task.Record
	Foreground task.Record
	Live       []task.Record // those at the top of the tree that have not ended, oldest first
	Mates      []task.Record // teammates of them
	TeamOnly   bool          // all that runs in the background are teammates
}

// Summary is made anew only when a task has changed.
func (s *State) Summary() Summary {
	if s.summed {
		return s.sum
	}
	var sum Summary
	var live []task.Record
	for _, r := range s.records {
		if r.Status.Terminal() {
			continue
		}
		live = append(live, r)
	}
	slices.SortFunc(live, older)
	for _, r := range live {
		if _, below := s.records[r.Parent]; !below && !r.Backgrounded {
			sum.Waits, sum.Foreground = append(sum.Waits, r), r
		}
	}
	sum.Pill, sum.Needs = task.PillLabel(live), task.PillNeedsView(live)
	sum.TeamOnly = true
	for _, r := range live {
		if p, ok := s.records[r.Parent]; ok && !p.Status.Terminal() {
			continue
		}
		sum.Live = append(sum.Live, r)
		if r.Team != nil {
			sum.Mates = append(sum.Mates, r)
		}
	}
	for _, r := range live {
		sum.TeamOnly = sum.TeamOnly && (r.Team != nil || !r.Background())
	}
	sum.TeamOnly = sum.TeamOnly && len(sum.Mates) > 0
	s.sum, s.summed = sum, true
	return sum
}

// Row is a task in the tree.
type Row struct {
	Record task.Record
	Depth  int
	Last   bool // of its parent's
}

// New makes an empty state.
func New() *State {
	return &State{records: map[task.ID]task.Record{}, evict: map[task.ID]time.Time{}, stale: true}
}

// Load takes in a listing.
func (s *State) Load(list []task.Record, now time.Time) {
	for _, r := range list {
		s.put(r, now)
	}
}

// Event takes in what happens to a task.
func (s *State) Event(e task.Event, now time.Time) { s.put(e.Task, now) }

func (s *State) put(r task.Record, now time.Time) {
	if r.IsConversation() {
		return
	}
	old, known := s.records[r.ID]
	if known && r.LastHeard == nil && r.Run == old.Run {
		r.LastHeard = old.LastHeard // only listings have it
	}
	s.records[r.ID] = r
	s.summed = false
	switch {
	case !r.Status.Terminal():
		delete(s.evict, r.ID)
	case !known || !old.Status.Terminal():
		at := now
		if r.EndTime != nil && r.EndTime.Before(now) {
			at = *r.EndTime
		}
		s.evict[r.ID] = at.Add(Grace)
	}
	if !known || old.Status != r.Status || old.Parent != r.Parent {
		s.stale = true
	} else if !s.stale {
		for i := range s.rows {
			if s.rows[i].Record.ID == r.ID {
				s.rows[i].Record = r
				break
			}
		}
	}
}

// Record is a task that is known.
func (s *State) Record(id task.ID) (task.Record, bool) {
	r, ok := s.records[id]
	return r, ok
}

func older(a, b task.Record) int {
	return cmp.Or(a.CreateTime.Compare(b.CreateTime), cmp.Compare(a.ID, b.ID))
}

// Hold keeps a task whose conversation is open; empty: none.
func (s *State) Hold(id task.ID, now time.Time) {
	s.release(s.held, id, now)
	s.held, s.stale = id, true
}

func (s *State) choose(id task.ID, now time.Time) {
	if id != s.chosen {
		s.release(s.chosen, id, now)
		s.chosen, s.armed, s.stale = id, "", true
		s.tail = Tail{}
	}
}

// release begins the grace of a task anew that is looked at no more.
func (s *State) release(id, next task.ID, now time.Time) {
	if _, ended := s.evict[id]; ended && id != next {
		s.evict[id] = now.Add(Grace)
	}
}

// shown reports whether a task is listed.
func (s *State) shown(r task.Record, now time.Time) bool {
	at, ended := s.evict[r.ID]
	return !ended || s.All || r.ID == s.held || r.ID == s.chosen || now.Before(at)
}

// Rows is the tree, oldest first. It is put in order again only when it has changed.
func (s *State) Rows(now time.Time) []Row {
	if !s.stale && (s.rowsTil.IsZero() || now.Before(s.rowsTil)) {
		return s.rows
	}
	children := map[task.ID][]task.Record{}
	visible := map[task.ID]bool{}
	s.rowsTil = time.Time{}
	for _, r := range s.records {
		if !s.shown(r, now) {
			continue
		}
		if at, ended := s.evict[r.ID]; ended && now.Before(at) && (s.rowsTil.IsZero() || at.Before(s.rowsTil)) {
			s.rowsTil = at
		}
		for x := r; !visible[x.ID]; { // with those above it
			visible[x.ID] = true
			p, ok := s.records[x.Parent]
			if !ok {
				children[""] = append(children[""], x)
				break
			}
			children[p.ID] = append(children[p.ID], x)
			x = p
		}
	}
	s.rows = s.rows[:0]
	var walk func(parent task.ID, depth int)
	walk = func(parent task.ID, depth int) {
		list := children[parent]
		slices.SortFunc(list, older)
		for i, r := range list {
			s.rows = append(s.rows, Row{r, depth, i == len(list)-1})
			walk(r.ID, depth+1)
		}
	}
	walk("", 0)
	s.stale = false
	if !slices.ContainsFunc(s.rows, func(r Row) bool { return r.Record.ID == s.chosen }) {
		s.chosen = ""
	}
	return s.rows
}

// Chosen is the task under the cursor: the first, as long as none was chosen.
func (s *State) Chosen(now time.Time) (task.Record, bool) {
	rows := s.Rows(now)
	for _, r := range rows {
		if r.Record.ID == s.chosen {
			return r.Record, true
		}
	}
	if len(rows) == 0 {
		return task.Record{}, false
	}
	return rows[0].Record, true
}

// Close clears the choice when the panel is hidden.
func (s *State) Close(now time.Time) {
	s.choose("", now)
	s.note = ""
}

// Ticks reports whether the panel changes with time alone.
func (s *State) Ticks(now time.Time) bool {
	for _, r := range s.Rows(now) {
		if !r.Record.Status.Terminal() {
			return true
		}
	}
	return !s.rowsTil.IsZero()
}
