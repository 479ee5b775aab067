package cli

import (
	"bytes"
	"context"
	"testing"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// lastWords is a world in which a session's host dies once it was found.
type lastWords struct {
	*world
	then []*session // what is found after that
	n    int
}

func (l *lastWords) Known(ctx context.Context, live, all bool) ([]console.Session, error) {
	if l.n++; l.n > 1 {
		l.mine = l.then
	}
	return l.world.Known(ctx, live, all)
}

// A listing in the moment in which a host dies shows what that has left.
func TestPsHostDies(t *testing.T) {
	dead := newSession("sdead0000", true, task.Record{ID: "b11111111", Kind: task.LocalBash, Status: task.Running, CreateTime: at(1)})
	dead.gone = true
	left := newSession("sdead0000", false, task.Record{ID: "b11111111", Kind: task.LocalBash, Status: task.Killed, CreateTime: at(1)})
	for name, c := range map[string]struct {
		then []*session
		want string
	}{
		"left":    {[]*session{left}, "b11111111\n"},
		"removed": {nil, ""},
	} {
		var out, errw bytes.Buffer
		w := &world{mine: []*session{dead}}
		deps := w.deps(&out, &errw)
		deps.Folder = &lastWords{world: w, then: c.then}
		cmd := New(deps)
		cmd.SetArgs([]string{"ps", "-aq"})
		if code := Execute(t.Context(), cmd, &errw); code != 0 || out.String() != c.want || errw.Len() > 0 {
			t.Errorf("%s: exit code %d, %q, %q", name, code, out.String(), errw.String())
		}
	}
}
