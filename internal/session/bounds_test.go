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
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// What other sessions hold counts, from their description if they have ended and
// from their files if not; what is known to be too much is looked at again before
// something is refused.
func TestQuota(t *testing.T) {
	root := home.At(t.TempDir())
	project := root.Project(t.TempDir())
	session := func() home.Session {
		t.Helper()
		place := project.Session(task.NewSessionID())
		if err := place.Ensure(); err != nil {
			t.Fatal(err)
		}
		return place
	}
	output := func(place home.Session, bytes int) string {
		t.Helper()
		path := place.Output(task.NewID(task.LocalBash))
		if err := os.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	describe := func(place home.Session, text string) {
		t.Helper()
		if err := home.WriteAtomic(place.InfoFile(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	past, other, mine := session(), session(), session()
	describe(past, `{"end_time":"2026-01-02T03:04:05Z","output_bytes":500}`)
	big := output(other, 300)
	output(mine, 100)
	b := newBounds(mine, Limits{UserQuota: 1000}, func(string) {})
	if err := b.room(); err != nil || b.left() != 100 {
		t.Fatalf("%d left, %v", b.left(), err)
	}
	if err := b.grown(60); err != nil || b.left() != 40 {
		t.Errorf("%d left, %v", b.left(), err)
	}
	if got := b.take(50); got != 40 {
		t.Errorf("%d were given", got)
	}
	if err := b.grown(1); err == nil || !strings.Contains(err.Error(), "tasks.userQuotaBytes, 1000 bytes") {
		t.Errorf("over: %v", err)
	}
	b.leave()
	next := newBounds(session(), Limits{UserQuota: 1000}, func(string) {}) // it knows what this one left, without a walk
	if next.left() != 0 {
		t.Errorf("the next session knows of %d", next.left())
	}
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.at = b.at.Add(-time.Minute)
	b.mu.Unlock()
	if err := b.room(); err != nil {
		t.Errorf("refused by what is not true any more: %v", err)
	}
}

// Too little room, or an end that cannot be recorded, is told once, and so is that it
// is over; whoever waits for it hears of it.
func TestTrouble(t *testing.T) {
	root := home.At(t.TempDir())
	var said []string
	b := newBounds(root.Project(t.TempDir()).Session(task.NewSessionID()), Limits{MinFree: 1 << 60}, func(text string) { said = append(said, text) })
	_, changed := b.trouble()
	for range 3 {
		var limit *supervise.LimitError
		if err := b.room(); !isLimit(err, &limit) || limit.Limit != "disk" {
			t.Fatalf("room: %v", err)
		}
	}
	if changed.Err() == nil || len(said) != 1 || !strings.Contains(said[0], "tasks.minFreeBytes") {
		t.Errorf("told %q", said)
	}
	b.minFree = 0
	b.save("run_1", fmt.Errorf("append event: %w", fmt.Errorf("commit: %w", os.ErrInvalid)))
	b.save("run_2", os.ErrInvalid)
	b.save("run_1", nil)
	if now, _ := b.trouble(); !strings.HasPrefix(now, "not saved: "+os.ErrInvalid.Error()) || len(said) != 2 {
		t.Errorf("%q, told %q", now, said)
	}
	b.save("run_2", nil)
	if now, _ := b.trouble(); now != "" || len(said) != 3 {
		t.Errorf("%q, told %q", now, said)
	}
}

func isLimit(err error, to **supervise.LimitError) bool {
	l, ok := err.(*supervise.LimitError)
	*to = l
	return ok
}

// Tasks that have left the memory are listed in pages, found and read as before.
func TestEvictedTasks(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Limits.HeldTasks, c.Limits.HeldFor = 8, time.Nanosecond })
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
	if info, err := r.Info(context.Background()); err != nil || info.Tasks.Total != 40 {
		t.Errorf("counts: %+v, %v", info.Tasks, err)
	}
	if reply, err := r.Wait(r.ctx, control.WaitRequest{Refs: []string{string(ids[1]), string(last.ID)}}); err != nil || len(reply.Tasks) != 2 || reply.Tasks[0].ID != ids[1] {
		t.Errorf("Wait: %+v, %v", reply, err)
	}
}
