package session

import (
	"slices"
	"testing"

	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
)

// The main agent lists what it and its children started, a subagent what is
// below it.
func TestListTasks(t *testing.T) {
	r := open(t, "")
	sleep := func(id task.ID) task.ID {
		t.Helper()
		rt := r.agents.Runtime(agents.Caller{ID: id, Cwd: r.folder, Env: r.cfg.Agents.Env})
		out, err := rt.Run(r.ctx, shelltool.Command{Args: []string{"sleep", "100"}, Line: "sleep 100", Cwd: r.folder, Background: true})
		if err != nil {
			t.Fatal(err)
		}
		return out.Task.ID
	}
	top := sleep(r.cfg.Info.Session)
	other := sleep(r.cfg.Info.Session)
	below := sleep(top)
	for _, c := range []struct {
		me   agents.Caller
		want []task.ID
	}{
		{agents.Caller{ID: r.cfg.Info.Session}, []task.ID{below, other, top}},
		{agents.Caller{ID: top, Host: tasktest.NewHost(t, task.LocalAgent, nil)}, []task.ID{below}},
		{agents.Caller{ID: below, Host: tasktest.NewHost(t, task.LocalAgent, nil)}, nil},
	} {
		recs, err := r.agents.Runtime(c.me).List(r.ctx)
		var got []task.ID
		for _, rec := range recs {
			got = append(got, rec.ID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s sees %v, want %v, %v", c.me.ID, got, c.want, err)
		}
	}
}
