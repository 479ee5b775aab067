//go:build linux

package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// cloud is a service of sessions in which nothing happens. It holds polls back, as
// ours does, or answers at once.
func cloud(holds bool, polls *atomic.Int64) *httptest.Server {
	var made atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/events") {
			_, _ = fmt.Fprintf(w, `{"session_id":"s%d"}`, made.Add(1))
			return
		}
		polls.Add(1)
		if holds && r.URL.Query().Get("after") != "" {
			t := time.NewTimer(20 * time.Second)
			defer t.Stop()
			select {
			case <-t.C:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `{"status":"running","cursor":"1","output_bytes":0}`)
	}))
}

// remote is what many sessions elsewhere cost in which nothing happens.
func (t *bench) remote() {
	for _, way := range []struct {
		name  string
		holds bool
	}{{"polls held by the service", true}, {"a service that does not hold polls", false}} {
		t.remoteIdle(way.name, way.holds)
	}
}

func (t *bench) remoteIdle(name string, holds bool) {
	const n = 50
	var polls atomic.Int64
	srv := cloud(holds, &polls)
	dir := t.temp()
	set := settings.Settings{Options: options.Default()}
	set.Remote.Services = map[string]options.RemoteService{"cloud": {URL: srv.URL}}
	s, err := assemble.Open(context.Background(), assemble.Config{Root: home.At(filepath.Join(dir, "state")), Folder: dir, Role: session.RoleBackground,
		Version: "bench", Env: t.env(dir), Settings: set, Keeper: []string{t.bin, "keeper", "--helper"}})
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
	for polls.Load() < 2*n { // each has been asked once, and waits
		<-time.After(10 * time.Millisecond)
	}
	more := held() - memory
	settle, pause := 5*time.Second, 5*time.Second
	<-time.After(settle) // sessions in which nothing happens are asked less and less often
	asked := polls.Load()
	cpu, wakes := idle(pause)
	asks := polls.Load() - asked
	t.add(row{name: fmt.Sprintf("%d remote tasks, %s: memory", n, name), unit: "MiB", ours: more, target: 16, note: "the service, in this process too, included"},
		row{name: "the same, CPU while nothing happens", unit: "ms/s", ours: cpu, target: 10,
			note: fmt.Sprintf("%.1f polls/s, %.0f wake-ups/s; the service included", float64(asks)/pause.Seconds(), wakes)})
	receipt, err := s.Stop(context.Background(), control.StopRequest{Refs: refs})
	t.must(err)
	if len(receipt.Stopped) != n || receipt.Stopped[0].Status != task.Killed {
		t.Fatalf("stopped %d", len(receipt.Stopped))
	}
	t.must(s.Close())
	srv.Close()
}
