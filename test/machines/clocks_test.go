//go:build linux

package machines

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// A machine whose clock is wrong by an hour works as any other: certificates are accepted, leases end neither early nor
// late, and how long a task has been at work is what passed.
func TestClocks(t *testing.T) {
	t.Parallel()
	long(t) // the program is built with another package time, and all of it with that
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		wrong := clock + "=" + strconv.Itoa(int(by/time.Second))
		for who, set := range map[string]func(*world){
			"worker": func(w *world) { w.atWorker = with(w.atWorker, late.program(t), w.far(), wrong) },
			"hub":    func(w *world) { w.atHub = with(w.atHub, late.program(t), w.hubHome(), wrong) },
		} {
			t.Run(who+" "+name, func(t *testing.T) {
				t.Parallel()
				w := open(t, apart, withTLS, set)
				w.wrong(by, wrong)
				id, lost := w.run("whole"), w.run("lost")
				begun := time.Now()
				time.Sleep(2 * lease) // for which it is renewed
				if r := w.record(id); r.Status != task.Running {
					t.Fatalf("behind two leases it is %s, %+v", r.Status, r.Cause)
				}
				w.since(id, begun)
				w.letGo("whole")
				if r := w.ended(id); r.Status != task.Completed {
					t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
				} else if took := r.EndTime.Sub(*r.StartTime); took < lease || took > time.Minute {
					t.Errorf("it took %s by the log", took)
				}
				w.whole(id, "whole")
				cut := time.Now()
				w.link.cut(true, true)
				if r := w.ended(lost); r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
					t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
				}
				if after := time.Since(cut); after < lease/2 || after > 4*lease {
					t.Errorf("its worker was given up after %s, the lease is %s", after, lease)
				}
				w.gone("lost")
				w.sound("clock of the " + who + " wrong by an hour")
			})
		}
	}
}

// wrong checks that the clock of the program is what it is to be: otherwise nothing is tried.
func (w *world) wrong(by time.Duration, env string) {
	w.Helper()
	there := with(w.Place, late.program(w), filepath.Join(w.Work, "clock"), env)
	id := there.Good("run", "-d", "--", "true")
	var r task.Record
	there.Read(&r, "inspect", id)
	if off := time.Until(r.CreateTime); (off - by).Abs() > time.Minute {
		w.Fatalf("the clock is wrong by %s, want %s", off, by)
	}
}

// since checks for how long the worker says to have been at work on a task.
func (w *world) since(id string, begun time.Time) {
	w.Helper()
	var list struct {
		Workers []struct {
			Tasks []struct {
				Task  string `json:"task_id"`
				Since int64  `json:"for_ms"`
			} `json:"tasks"`
		} `json:"workers"`
	}
	w.Must(json.Unmarshal([]byte(w.Good("workers", "--json")), &list))
	for _, worker := range list.Workers {
		for _, x := range worker.Tasks {
			if took := time.Duration(x.Since) * time.Millisecond; x.Task == id && took > time.Since(begun)+lease {
				w.Errorf("the worker says to have been at work for %s", took)
			}
		}
	}
}
