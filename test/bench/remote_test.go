//go:build linux

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/a2atest"
)

// remote is what many tasks elsewhere cost in which nothing happens.
func (t *bench) remote() {
	for _, way := range []struct {
		name  string
		polls bool
	}{{"followed by streams", false}, {"an agent without streams", true}} {
		t.remoteIdle(way.name, way.polls)
	}
}

func (t *bench) remoteIdle(name string, polls bool) {
	const n = 50
	srv := a2atest.New()
	srv.Polls = polls
	dir := t.temp()
	set := settings.Settings{Options: options.Default()}
	set.Remote.Services = map[string]options.RemoteService{"cloud": {URL: srv.Card()}}
	s, err := assemble.Open(context.Background(), assemble.Config{Config: bare.Config{Root: home.At(filepath.Join(dir, "state")), Folder: dir, Role: session.RoleBackground,
		Version: "bench", Env: t.env(dir), Settings: set, Keeper: []string{t.bin, "keeper", "--helper"}}})
	t.must(err)
	s.Serve()
	reqs := make([]control.StartRequest, n)
	for i := range reqs {
		reqs[i] = control.StartRequest{Remote: &control.RemoteRequest{Prompt: "nothing"}, Cwd: dir}
	}
	memory := held()
	started, err := s.Start(context.Background(), reqs)
	t.must(err)
	refs := make([]string, n)
	for i, one := range started {
		if one.Error != nil {
			t.Fatal(one.Error)
		}
		refs[i] = string(one.Task.ID)
	}
	for srv.Calls(a2a.SubscribeToTask) < n && srv.Calls(a2a.GetTask) < 2*n { // each is followed
		<-time.After(10 * time.Millisecond)
	}
	more := held() - memory
	settle, pause := 5*time.Second, 5*time.Second
	<-time.After(settle) // tasks in which nothing happens are asked for less and less often
	asked := srv.Calls(a2a.GetTask)
	cpu, wakes := idle(pause)
	asks := srv.Calls(a2a.GetTask) - asked
	t.add(row{name: fmt.Sprintf("%d remote tasks, %s: memory", n, name), unit: "MiB", ours: more, target: 16, note: "the agent, in this process too, included"},
		row{name: "the same, CPU while nothing happens", unit: "ms/s", ours: cpu, target: 10,
			note: fmt.Sprintf("%.1f polls/s, %.0f wake-ups/s; the agent included", float64(asks)/pause.Seconds(), wakes)})
	receipt, err := s.Stop(context.Background(), control.StopRequest{Refs: refs})
	t.must(err)
	if len(receipt.Stopped) != n || receipt.Stopped[0].Status != task.Killed {
		t.Fatalf("stopped %d", len(receipt.Stopped))
	}
	t.must(s.Close())
	srv.Close()
}
