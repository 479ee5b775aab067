package session

import (
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
)

// A host that may not end yet takes a schedule, and then stays for it.
func TestScheduleAfterRest(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Info.Role = RoleBackground })
	r.run("sleep 100", named("quiet"))
	if r.Retire() {
		t.Fatal("the host ends although a task runs")
	}
	nightly := &control.Schedule{Name: "nightly", Cron: "0 3 * * *", Cwd: t.TempDir(), Shell: &control.ShellRequest{Line: "true"}}
	if _, err := r.Schedules(r.ctx, control.ScheduleRequest{Add: nightly}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{"quiet"}}); err != nil {
		t.Fatal(err)
	}
	if r.Retire() {
		t.Error("the host ends although it has a schedule")
	}
	if _, err := r.Schedules(r.ctx, control.ScheduleRequest{Remove: "nightly"}); err != nil {
		t.Fatal(err)
	}
	if !r.Retire() {
		t.Error("the host stays with nothing to do")
	}
}
