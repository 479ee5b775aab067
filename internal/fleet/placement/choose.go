package placement

import (
	"cmp"
	"slices"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/task"
)

// choose returns the worker to which a task is offered before all that fit: one that has commits of its repository,
// and of several the one of which the smallest part is in use. busy is how many places of a worker are. A worker
// without a free place is not chosen. The answer is empty if there is nothing to choose from.
func choose(all []fleetwire.Worker, busy func(fleetwire.Worker) int, on, repo string) string {
	shared := map[string]bool{} // labels: what is offered to a worker of that name alone reaches others too
	for _, w := range all {
		for _, l := range w.Labels {
			shared[l] = shared[l] || l != w.Name
		}
	}
	type place struct {
		fleetwire.Worker
		busy int
		far  int // 1: it has nothing of the repository
	}
	var free []place
	for _, w := range all {
		if on != Auto && w.Name != on && !slices.Contains(w.Labels, on) || shared[w.Name] || w.Draining || w.Problem != "" {
			continue
		}
		if _, err := fleetwire.Speaks(w.Name, w.Oldest, w.Newest); err != nil {
			continue
		}
		p := place{Worker: w, busy: busy(w), far: 1}
		if repo != "" && slices.Contains(w.Repos, repo) {
			p.far = 0
		}
		if p.busy < w.Capacity {
			free = append(free, p)
		}
	}
	if len(free) < 2 {
		return ""
	}
	best := slices.MinFunc(free, func(a, b place) int {
		return cmp.Or(
			cmp.Compare(a.far, b.far),
			cmp.Compare(a.busy*b.Capacity, b.busy*a.Capacity), // as parts of all places
			cmp.Compare(b.Capacity-b.busy, a.Capacity-a.busy),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return best.Name
}

// aim chooses the worker to which a task is offered first, and counts the task there; empty: none.
func (f *Fleet) aim(w *work, all []fleetwire.Worker) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := choose(all, func(one fleetwire.Worker) int { // of its own tasks the session knows more than the worker has told
		n := len(f.at[one.Name])
		for _, d := range one.Tasks {
			if d.Session != f.cfg.Session {
				n++
			}
		}
		return n
	}, w.rec.On, w.repo)
	f.move(w, first)
	return first
}

// moved counts a task at another worker; empty: at none.
func (f *Fleet) moved(w *work, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.move(w, to)
}

// move is moved for a caller that holds mu.
func (f *Fleet) move(w *work, to string) {
	if delete(f.at[w.where], w.id); len(f.at[w.where]) == 0 {
		delete(f.at, w.where)
	}
	if w.where = to; to == "" {
		return
	}
	if f.at[to] == nil {
		f.at[to] = map[task.ID]bool{}
	}
	f.at[to][w.id] = true
}
