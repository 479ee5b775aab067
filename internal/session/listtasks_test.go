package session

import (
	"slices"
	"testing"

	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/task/tasktest"
)

// The main agent lists what it and its children started, a subagent what is
// below it.
func TestListTasks(t *testing.T) {
	r := open(t, "")
	sleep := func(id task.ID) task.ID {
		t.Helper()
		rt := &runtime{caller: caller{s: r.Session, id: id, cwd: r.folder, env: r.cfg.Agents.Env}}
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
		me   caller
		want []task.ID
	}{
		{caller{s: r.Session, id: r.cfg.Info.Session}, []task.ID{below, other, top}},
		{caller{s: r.Session, id: top, host: tasktest.NewHost(t, task.LocalAgent, nil)}, []task.ID{below}},
		{caller{s: r.Session, id: below, host: tasktest.NewHost(t, task.LocalAgent, nil)}, nil},
	} {
		recs, err := (&runtime{caller: c.me}).List(r.ctx)
		var got []task.ID
		for _, rec := range recs {
			got = append(got, rec.ID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s sees %v, want %v, %v", c.me.id, got, c.want, err)
		}
	}
}
