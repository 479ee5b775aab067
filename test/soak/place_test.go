//go:build linux

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/test/harness"
)

// place is a place with a folder for each host.
type place struct{ *harness.Place }

func newPlace(t *testing.T) *place {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "drover")
	if err := harness.Build(bin); err != nil {
		t.Fatal(err)
	}
	p := &place{harness.New(t, bin)}
	for _, dir := range []string{"work", "talk"} {
		p.Must(os.Mkdir(filepath.Join(p.Work, dir), 0o700))
	}
	t.Cleanup(func() { p.End(20 * time.Second) }) // after a test that did not fail there is nothing to end
	return p
}

// keep leaves logs of hosts where somebody can read them.
func (s *soak) keep() {
	logs, _ := filepath.Glob(filepath.Join(s.Work, "state", "projects", "*", "host.log"))
	for _, name := range logs {
		if text, err := os.ReadFile(name); err == nil {
			s.Logf("%s:\n%.20000s", name, text)
		}
	}
}

// run calls drover in the project of a host.
func (p *place) run(ctx context.Context, dir string, args ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, p.Bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, p.Env, &stdout, &stderr
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("drover %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(stdout.String()), err
}

// good calls what must succeed.
func (p *place) good(dir string, args ...string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	out, err := p.run(ctx, dir, args...)
	if err != nil {
		p.Fatal(err)
	}
	return out
}

// host finds the host of a session that was begun in a folder.
func (p *place) host(name, dir string, is func(control.Info) bool) *hosted {
	p.Helper()
	var all []control.Info
	if err := json.Unmarshal([]byte(p.good(dir, "sessions", "--json")), &all); err != nil {
		p.Fatal(err)
	}
	i := slices.IndexFunc(all, func(i control.Info) bool { return i.Live && is(i) })
	if i < 0 {
		p.Fatalf("no session of %s is live: %+v", dir, all)
	}
	return &hosted{name: name, dir: dir, session: all[i].Session, place: all[i].Dir, client: control.Dial(all[i].Socket), pid: all[i].PID}
}

// keeperOf is the process above a host.
func (h *hosted) keeperOf() int { return harness.ParentOf(h.pid) }
