package session

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// A session whose folder is removed stops what nobody could find any more, and who holds it hears why.
func TestFolderGone(t *testing.T) {
	said := make(chan string, 10)
	r := open(t, "", func(c *Config) {
		c.Info.Role = RoleBackground
		c.Tell = func(_ task.ID, text string) { said <- text }
	})
	rec := r.run("sleep 1000")
	r.begun(task.LocalBash)
	if err := os.RemoveAll(r.cfg.Place.Dir()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Alone().Done():
	case <-r.ctx.Done():
		t.Fatal(context.Cause(r.ctx))
	}
	if why := context.Cause(r.Alone()); !errors.Is(why, ErrFolderGone) {
		t.Errorf("the cause is %v", why)
	}
	if got, _ := r.sup.Get(rec.ID); got.Status != task.Killed || got.Cause.Reason != task.ReasonStateLost || got.Cause.Actor != task.ByRuntime {
		t.Errorf("the command is %s: %+v", got.Status, got.Cause)
	}
	if text := <-said; !strings.Contains(text, "is gone, and 1 tasks were stopped for that") {
		t.Errorf("the user read %q", text)
	}
	_ = r.Session.Close() // its files are gone
	r.Session = nil
}

// A process that left the group of its command, and outlived the search at its end, ends with the session.
func TestCloseEndsWhatIsLeft(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Info.Role = RoleBackground })
	r.wait(string(r.run("true").ID))
	left := exec.Command("sleep", "1000")
	left.Env = []string{process.MarkSession + "=" + string(r.cfg.Info.Session)}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }() // ends with the process
	if err := r.Session.Close(); err != nil {
		t.Error(err)
	}
	r.Session = nil
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it is left running")
		_ = left.Process.Kill()
		<-ended
	}
}
