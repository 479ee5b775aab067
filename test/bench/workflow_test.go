//go:build linux

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// workflow runs 100 steps that do nothing: side by side, and one after the other.
func (t *bench) workflow() {
	const steps, wide = 100, 10
	for _, form := range []struct {
		name     string
		parallel int
		needs    func(i int) string
	}{
		{"workflow of 100 steps, ten at a time", wide, func(int) string { return "" }},
		{"workflow of 100 steps, one after the other", 1, func(i int) string { return fmt.Sprintf(", needs: s%d", i-1) }},
	} {
		dir := t.temp()
		var b strings.Builder
		fmt.Fprintf(&b, "parallel: %d\nsteps:\n", form.parallel)
		for i := range steps {
			needs := ""
			if i > 0 {
				needs = form.needs(i)
			}
			fmt.Fprintf(&b, "  - {id: s%d, shell: \":\"%s}\n", i, needs)
		}
		file := filepath.Join(dir, "w.yaml")
		t.must(os.WriteFile(file, []byte(b.String()), 0o600))
		env := t.env(dir)
		ours, floor := turns(t.runs(5),
			func() float64 { return ms(t.run(dir, env, t.bin, "workflow", "run", file).wall()) },
			func() float64 { return ms(t.cSpawn(dir, steps, form.parallel, "bash", "-c", ":")) })
		t.add(row{name: form.name, unit: "ms", ours: ours, floor: floor, of: "posix_spawn of `bash -c :`", note: "each step a task, its end durable"})
	}
	t.waiting()
}
