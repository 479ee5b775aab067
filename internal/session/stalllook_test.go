package session

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/session/stall"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/task"
)

// stalls are the messages of that kind that the main agent has not read.
func (r *rig) stalls() []mailbox.Mail {
	r.t.Helper()
	box, err := r.box(r.ctx, r.cfg.Info.Session)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.DeleteFunc(box.Mail(), func(m mailbox.Mail) bool { return m.Message == nil || m.Message.Kind != task.Stalled })
}

// An output that has grown since the last look is not read, whatever it ends with;
// one that has not is, and what it asks is told once.
func TestStallLook(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Limits.StallAfter = time.Nanosecond }) // any two looks are so far apart
	rec := task.Record{ID: "b00000000", Kind: task.LocalBash, Status: task.Running, Backgrounded: true, Owner: r.cfg.Info.Session,
		Description: "asks", OutputFile: r.cfg.Place.Output("b00000000")}
	f, err := os.OpenFile(rec.OutputFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, rules, table := &stall.Watch{}, stall.New(), &process.Table{}
	look := func(what, grows string, told int) {
		t.Helper()
		if _, err := f.WriteString(grows); err != nil {
			t.Fatal(err)
		}
		r.lookAt(rec, w, rules, table)
		if got := r.stalls(); len(got) != told {
			t.Fatalf("%s: told %d times, want %d: %+v", what, len(got), told, got)
		}
	}
	look("first seen", "Continue? [y/N] ", 0)
	look("grown", "no\nContinue? [y/N] ", 0)
	look("grown again", "no\nworks on it", 0)
	look("quiet, and no question", "", 0)
	look("a question", "\nContinue? [y/N] ", 0)
	look("quiet", "", 1)
	look("quiet still", "", 1)
	look("another", "no\nReally? [y/N] ", 1)
	look("quiet after another", "", 1)
	if text := r.stalls()[0].Message.Text; !strings.Contains(text, "seems to wait for an answer") || !strings.Contains(text, "Continue? [y/N]") {
		t.Errorf("told %q", text)
	}
}

// What was told of stands in the record, by which the next host knows it.
func TestStallTold(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Limits.StallAfter = 100 * time.Millisecond })
	rt := &runtime{self: self{s: r.Session, id: r.cfg.Info.Session, cwd: r.folder, env: os.Environ()}}
	const line = "printf 'Continue? [y/N] '; exec sleep 643"
	out, err := rt.Run(r.ctx, shelltool.Command{Line: line, Args: []string{"bash", "-c", line}, Cwd: r.folder, Background: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := out.Task
	box, err := r.box(r.ctx, r.cfg.Info.Session)
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
	if w, _ := follow(nil, now); w == nil || !w.Told() {
		t.Error("the next host tells of it again")
	}
}

// The looks are 5 s apart where nothing else is set.
func TestStallDefault(t *testing.T) {
	r := open(t, "")
	if after := r.Session.cfg.Limits.StallAfter; after != 45*time.Second || after/stallLooks != 5*time.Second || stall.TailBytes != 1024 {
		t.Errorf("after %s, every %s, the last %d bytes", after, after/stallLooks, stall.TailBytes)
	}
}
