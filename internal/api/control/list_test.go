package control

import (
	"context"
	"fmt"
	"testing"

	"github.com/drover-dev/drover/task"
)

// paged notes how much was asked for at once.
type paged struct {
	*fake
	most int
}

func (p *paged) List(ctx context.Context, req ListRequest) (Page, error) {
	page, err := p.fake.List(ctx, req)
	p.most = max(p.most, len(page.Tasks))
	return page, err
}

// A listing of everything comes in pages, however long the past is: all tasks, each once,
// and no page takes more memory than another.
func TestListAll(t *testing.T) {
	for _, n := range []int{0, 1, pageTasks, pageTasks + 1, 3*pageTasks + 7} {
		p := &paged{fake: newFake()}
		p.tasks = nil
		for i := range n {
			p.tasks = append(p.tasks, task.Record{ID: task.ID(fmt.Sprintf("b%08d", i)), Status: task.Completed, Kind: task.LocalBash})
		}
		all, err := serve(t, NewServer(p)).client.List(t.Context(), ListRequest{All: true})
		if err != nil || len(all.Tasks) != n || all.Next != 0 {
			t.Fatalf("%d of %d tasks, %v", len(all.Tasks), n, err)
		}
		for i, r := range all.Tasks {
			if r.ID != p.tasks[n-1-i].ID {
				t.Fatalf("%s is at place %d of %d", r.ID, i, n)
			}
		}
		if p.most > pageTasks {
			t.Errorf("%d were asked for at once", p.most)
		}
	}
}
