package session

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/task"
)

// stalls are the messages of that kind that the main agent has not read.
func (r *testSession) stalls() []mailbox.Mail {
	r.t.Helper()
	box, err := r.mail.Open(r.ctx, r.cfg.Info.Session)
	if err != nil {
		r.t.Fatal(err)
	}
	mail, err := box.Mail(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.DeleteFunc(mail, func(m mailbox.Mail) bool { return m.Message == nil || m.Message.Kind != task.Stalled })
}

// What was told of stands in the record, by which the next host knows it.
func TestStallTold(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Options.Tasks.StallAfter = 100 * time.Millisecond })
	rt := r.agents.Runtime(agents.Caller{ID: r.cfg.Info.Session, Cwd: r.folder, Env: os.Environ()})
	const line = "printf 'Continue? [y/N] '; exec sleep 643"
	out, err := rt.Run(r.ctx, shelltool.Command{Line: line, Args: []string{"bash", "-c", line}, Cwd: r.folder, Background: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := out.Task
	box, err := r.mail.Open(r.ctx, r.cfg.Info.Session)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Wait(r.ctx); err != nil {
		t.Fatal(err)
	}
	if got := r.stalls(); len(got) != 1 || got[0].Message.From != string(rec.ID) {
		t.Fatalf("told %+v", got)
	}
	now, ok := r.sup.Get(rec.ID)
	if !ok || now.Progress == nil || !strings.Contains(now.Progress.Summary, "Continue? [y/N]") {
		t.Fatalf("the record: %+v", now.Progress)
	}
}

// The time without output is 45 s where nothing else is set.
func TestStallDefault(t *testing.T) {
	r := open(t, "")
	if after := r.Session.cfg.Options.Tasks.StallAfter; after != 45*time.Second {
		t.Errorf("after %s", after)
	}
}
