//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
)

// finished is a detached host that has brought many commands to their end: what it
// weighs then, and how fast it lists them and starts another. The peer is the same
// host with one.
func (t *bench) finished() {
	const batch = 2_000
	n := t.size(10_000, batch)
	dir := t.temp()
	env := t.env(dir)
	listed := func() float64 { return ms(t.run(dir, env, t.bin, "ps", "-a").wall()) }
	started := func() float64 { return ms(t.run(dir, env, t.bin, "run", "-d", "--", "true").wall()) }
	several := func(one func() float64) float64 {
		took := make([]float64, t.runs(15))
		for i := range took {
			took[i] = one()
		}
		return median(took)
	}
	started()
	t.settled(dir, env)
	reopened := func() float64 { t.endHost(dir, env); return started() }
	fewStarted, fewListed, few := several(started), several(listed), memoryOf(t, t.hostPID(dir))["VmRSS"]
	fewReopened := several(reopened)
	file := filepath.Join(dir, "batch")
	t.must(os.WriteFile(file, []byte(strings.Repeat("true\n", batch)), 0o600))
	for range n / batch {
		t.run(dir, env, t.bin, "run", "-d", "--batch", file)
		t.settled(dir, env)
	}
	memory := memoryOf(t, t.hostPID(dir))
	name := fmt.Sprintf("a detached host with %d finished tasks", n)
	t.add(row{name: name + ": first page of `ps -a`", unit: "ms", ours: several(listed), floor: fewListed, of: "with few", target: 50},
		row{name: "the same: one `drover run -d`", unit: "ms", ours: several(started), floor: fewStarted, of: "with few", target: 100},
		row{name: "the same: memory of the host", unit: "MiB", ours: memory["VmRSS"], floor: few, of: "with few",
			note: fmt.Sprintf("peak %.0f MiB, with up to %d queued", memory["VmHWM"], batch)},
		row{name: "the same session opened by a new host: one `drover run -d`", unit: "ms", ours: several(reopened), floor: fewReopened,
			of: "with few", target: 100})
	t.endHost(dir, env)
}

// hostPID is the process of the one host that lives in a state folder.
func (t *bench) hostPID(dir string) int { return t.hostInfo(dir).PID }

// hostInfo is what that host says of itself.
func (t *bench) hostInfo(dir string) control.Info {
	paths, _ := filepath.Glob(filepath.Join(dir, "state/projects/*/*/session.json"))
	for _, path := range paths {
		var info control.Info
		data, err := os.ReadFile(path)
		t.must(err)
		t.must(json.Unmarshal(data, &info))
		if info.PID != 0 {
			return info
		}
	}
	t.Fatal("no host lives")
	return control.Info{}
}
