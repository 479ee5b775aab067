package session

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

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
