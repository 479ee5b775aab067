package session

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Tasks that have left the memory are listed in pages, found and read as before.
func TestEvictedTasks(t *testing.T) {
	r := open(t, "", func(c *Config) { c.HeldTasks, c.HeldFor = 8, time.Nanosecond })
	var ids []task.ID
	var last task.Record
	for n := range 40 {
		rec, err := r.RunCommand(r.ctx, control.StartRequest{Name: fmt.Sprint("n", n), Cwd: r.folder, Shell: &control.ShellRequest{Line: fmt.Sprint("echo out ", n)}}, shell.Client{})
		if err != nil {
			t.Fatal(err)
		}
		ids, last = append(ids, rec.ID), rec
	}
	held := 0
	for range r.sup.List(0) {
		held++
	}
	if held > 9 {
		t.Errorf("%d of 40 are in memory", held)
	}
	var listed []task.ID
	for before := task.Seq(0); ; {
		page, err := r.List(r.ctx, control.ListRequest{All: true, Limit: 7, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page.Tasks {
			listed = append(listed, one.ID)
		}
		if before = page.Next; before == 0 {
			break
		}
	}
	slices.Reverse(listed)
	if !slices.Equal(listed, ids) {
		t.Errorf("%d listed", len(listed))
	}
	for _, ref := range []string{string(ids[0]), "n0", string(ids[0][:8])} {
		got, err := r.Get(r.ctx, ref)
		if err != nil || got.ID != ids[0] || got.Status != task.Completed {
			t.Errorf("Get(%s): %+v, %v", ref, got, err)
		}
		a, err := control.WholeResult(r.ctx, r, ref)
		if err != nil || a.Text != "out 0\n" {
			t.Errorf("Result(%s): %q, %v", ref, a.Text, err)
		}
		chunk, err := r.Output(r.ctx, control.OutputRequest{Ref: ref})
		if err != nil || string(chunk.Data) != "out 0\n" || !chunk.Ended {
			t.Errorf("Output(%s): %+v, %v", ref, chunk, err)
		}
	}
	page, err := r.List(r.ctx, control.ListRequest{All: true, Under: ids[3]})
	if err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != ids[3] {
		t.Errorf("below one: %+v, %v", page, err)
	}
	if info, err := r.Info(context.Background()); err != nil || info.Tasks.Total != 40 || info.DiskBytes == 0 {
		t.Errorf("counts: %+v, %d bytes, %v", info.Tasks, info.DiskBytes, err)
	}
	if reply, err := r.Wait(r.ctx, control.WaitRequest{Refs: []string{string(ids[1]), string(last.ID)}}); err != nil || len(reply.Tasks) != 2 || reply.Tasks[0].ID != ids[1] {
		t.Errorf("Wait: %+v, %v", reply, err)
	}
}

// A teammate that has left the memory is still found by its own name, without its team,
// and a remote agent by its session elsewhere.
func TestEvictedNames(t *testing.T) {
	end := time.Now().Add(-time.Hour)
	r := open(t, "", func(c *Config) {
		c.HeldTasks = 8
		if err := c.Place.Ensure(); err != nil {
			t.Fatal(err)
		}
		log, err := journal.Open(c.Place.DB(), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 30 {
			rec := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Completed, Session: c.Place.ID(),
				CreateTime: end, EndTime: &end}
			switch n {
			case 0:
				rec.Name, rec.Team = "mate@crew", &task.Team{AgentID: "mate@crew", Name: "mate", Team: "crew"}
			case 1:
				rec.Progress = &task.Progress{Remote: &task.RemoteSession{ID: "cse_elsewhere"}}
			}
			if _, err := log.Append(t.Context(), lifecycle.Entry{Verb: task.Complete, At: end, Task: rec, Notification: &lifecycle.Notification{Run: rec.Run, Task: rec.ID, Acked: true}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
	held := 0
	for range r.sup.List(0) {
		held++
	}
	if held > 8 {
		t.Fatalf("%d in memory: the test shows nothing", held)
	}
	for _, ref := range []string{"mate", "cse_elsewhere"} {
		if got, err := r.Get(r.ctx, ref); err != nil {
			t.Errorf("%s: %+v, %v", ref, got.ID, err)
		}
	}
}

// What the disk does not allow is not started, and says so to whoever asks; what has
// grown is left to the next session.
func TestDiskLimits(t *testing.T) {
	command := func(r *testSession) error {
		_, err := r.RunCommand(r.ctx, control.StartRequest{Cwd: r.folder, Shell: &control.ShellRequest{Line: "echo something"}}, shell.Client{})
		return err
	}
	full := open(t, "", func(c *Config) { c.Options.Tasks.MinFreeBytes = 1 << 60 })
	if err := command(full); code(err) != control.Unavailable || !strings.Contains(err.Error(), "tasks.minFreeBytes") {
		t.Errorf("on a full disk: %v", err)
	}
	if info, err := full.Info(full.ctx); err != nil || !strings.Contains(info.Problem, "tasks.minFreeBytes") {
		t.Errorf("info: %q, %v", info.Problem, err)
	}
	r := open(t, "", func(c *Config) { c.Options.Tasks.UserQuotaBytes = 1 << 20 })
	if got := r.Space.Take(100); got != 100 {
		t.Fatalf("%d bytes may be written", got)
	}
	r.close()
	known := r.cfg.Place.Project().Root().OutputsFile()
	if data, err := os.ReadFile(known); err != nil || !strings.Contains(string(data), `"bytes":100`) {
		t.Errorf("left to the next session: %s, %v", data, err)
	}
}
