package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree lays out files as the kernel shows them.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The counts are found in each form in which kernels and containers show them, and
// what is not there is not known.
func TestKills(t *testing.T) {
	const (
		vmstat   = "nr_free_pages 12\npgpgin 4\noom_kill_x 99\noom_kill 18\nnuma_hit 7\n"
		control  = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
		events   = "low 0\nhigh 0\nmax 12\noom 5\noom_kill 4\noom_group_kill 2\n"
		own      = "proc/self/cgroup"
		v1, v2   = "9:pids:/a\n4:cpu,memory:/a/b\n0::/other\n", "0::/user.slice/x.scope\n"
		machine  = "proc/vmstat"
		v1Mount  = "sys/fs/cgroup/memory/"
		v2Mount  = "sys/fs/cgroup/"
		ownGroup = "user.slice/x.scope/memory.events"
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  Kills
	}{
		"v1":              {map[string]string{machine: vmstat, own: v1, v1Mount + "a/b/memory.oom_control": control}, Kills{18, 3}},
		"v1-container":    {map[string]string{machine: vmstat, own: v1, v1Mount + "memory.oom_control": control}, Kills{18, 3}},
		"v1-old-kernel":   {map[string]string{own: v1, v1Mount + "a/b/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}, Kills{-1, -1}},
		"v2":              {map[string]string{machine: vmstat, own: v2, v2Mount + ownGroup: events}, Kills{18, 4}},
		"v2-container":    {map[string]string{machine: vmstat, own: "0::/\n", v2Mount + "memory.events": events}, Kills{18, 4}},
		"v2-of-all":       {map[string]string{machine: vmstat, own: "0::/\n"}, Kills{18, -1}},
		"hybrid-without":  {map[string]string{machine: vmstat, own: "1:name=systemd:/\n0::/a\n"}, Kills{18, -1}},
		"none":            {map[string]string{machine: vmstat}, Kills{18, -1}},
		"nothing":         {nil, Kills{-1, -1}},
		"garbage":         {map[string]string{machine: "oom_kill\noom_kill x\noom_kill -4\noom_kill 1 2\n\x00\n", own: "::::\n0:memory:relative\n\n7"}, Kills{-1, -1}},
		"too-large":       {map[string]string{machine: "oom_kill 99999999999999999999\n"}, Kills{-1, -1}},
		"beyond-the-rest": {map[string]string{machine: strings.Repeat("x 1\n", maxCounts) + "oom_kill 5\n"}, Kills{-1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := openKillCounter(tree(t, c.files)).Read(); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A process is inside where the kernel says so, and nowhere else.
func TestInside(t *testing.T) {
	for name, c := range map[string]struct {
		own, of string
		want    bool
	}{
		"same":     {"0::/a/b\n", "0::/a/b\n", true},
		"below":    {"0::/a/b\n", "0::/a/b/c\n", true},
		"removed":  {"0::/a/b\n", "0::/a/b/c (deleted)\n", true},
		"top":      {"0::/\n", "0::/c\n", true},
		"beside":   {"0::/a/b\n", "0::/a/bc\n", false},
		"above":    {"0::/a/b\n", "0::/a\n", false},
		"outside":  {"0::/\n", "0::/../other\n", false},
		"v1":       {"4:memory:/a\n", "4:memory:/a\n", false}, // of one that has ended, v1 always says /
		"not-told": {"0::/a\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, map[string]string{"proc/self/cgroup": c.own, "proc/77/cgroup": c.of})
			if got := openKillCounter(root).Inside(77); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if openKillCounter(tree(t, map[string]string{"proc/self/cgroup": "0::/a\n"})).Inside(77) {
		t.Error("one that has gone is inside")
	}
}

func TestSince(t *testing.T) {
	for name, c := range map[string]struct {
		before, now Kills
		inside      bool
		want        Evidence
	}{
		"nothing":              {Kills{5, 2}, Kills{5, 2}, false, NoEvidence},
		"in-group":             {Kills{5, 2}, Kills{6, 3}, true, InGroup},
		"in-group-unsure":      {Kills{5, 2}, Kills{6, 3}, false, InGroup},
		"elsewhere":            {Kills{5, 2}, Kills{6, 2}, true, NoEvidence},
		"perhaps-elsewhere":    {Kills{5, 2}, Kills{6, 2}, false, OnMachine},
		"no-group":             {Kills{5, -1}, Kills{6, -1}, true, OnMachine},
		"group-gone":           {Kills{5, 2}, Kills{6, -1}, true, OnMachine},
		"group-appears":        {Kills{5, -1}, Kills{5, 3}, true, NoEvidence},
		"nothing-known":        {Kills{-1, -1}, Kills{-1, -1}, false, NoEvidence},
		"machine-appears":      {Kills{-1, -1}, Kills{4, -1}, false, NoEvidence},
		"counted-from-nothing": {Kills{0, 0}, Kills{1, 0}, false, OnMachine},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.now.Since(c.before, c.inside); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func FuzzKills(f *testing.F) {
	f.Add("low 0\noom_kill ", int64(3), "\nmax 1\n")
	f.Add("4:memory:/a\n", int64(0), "")
	f.Fuzz(func(t *testing.T, before string, n int64, behind string) {
		_, _ = parseMembership([]byte(before)), parseKills([]byte(before)) // whatever it is, no panic
		if strings.Contains(before, "oom_kill") || strings.ContainsAny(before, "\r") {
			t.Skip()
		}
		want := max(n, -1)
		if got := parseKills(fmt.Appendf(nil, "%s\noom_kill %d\n%s", before, n, "x"+behind)); n >= 0 && got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	})
}

// What it costs beside each start of a command, at most once a second.
func BenchmarkKills(b *testing.B) {
	c := OpenKillCounter()
	for b.Loop() {
		c.Read()
	}
}
