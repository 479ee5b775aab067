package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A ban on all of a parent of the project is about the parent's other children, for file tools and
// for commands; one that names the project is about the project.
func TestParentBans(t *testing.T) {
	ws := workspace(t, "")
	name := filepath.Base(ws)
	sibling := filepath.Join(filepath.Dir(ws), "sibling")
	if err := os.MkdirAll(sibling, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ban  string
		call agent.Call
		want Outcome
	}{
		{"Read(../**)", call("Read", "file_path", "a.txt"), Allow},
		{"Read(../**)", call("Read", "file_path", filepath.Join(ws, "a.txt")), Allow},
		{"Read(../**)", bash("cat a.txt"), Allow},
		{"Read(../**)", bash("grep -r x src"), Allow},
		{"Read(../**)", call("Glob", "pattern", "**/*.go"), Allow},
		{"Read(../**)", call("Read", "file_path", "../sibling/f"), Deny},
		{"Read(../**)", call("Read", "file_path", sibling+"/f"), Deny},
		{"Read(../**)", bash("cat ../sibling/f"), Deny},
		{"Read(../**)", bash("cat \"$f\""), Ask},
		{"Read(..)", call("Read", "file_path", "a.txt"), Allow},
		{"Read(..)", call("Read", "file_path", "../sibling/f"), Deny},
		{"Read(./../*)", call("Read", "file_path", "a.txt"), Allow},
		{"Read(../../**)", call("Read", "file_path", "a.txt"), Allow},
		{"Read(../../**)", call("Read", "file_path", "../../f"), Deny},
		{"Edit(../**)", call("Edit", "file_path", "a.txt"), Allow},
		{"Write(../**)", call("Write", "file_path", "new.txt"), Allow},
		{"Write(../**)", call("Write", "file_path", "../sibling/f"), Deny},
		{"Write(../**)", bash("echo x > ../sibling/f"), Deny},
		{"Read(../" + name + "/**)", call("Read", "file_path", "a.txt"), Deny},
		{"Read(../*/a.txt)", call("Read", "file_path", "a.txt"), Deny},
	} {
		g := gate(t, Rules{Mode: AcceptEdits, Deny: []string{c.ban}, Cwd: ws, ReadOnlyAuto: true, Filtered: true})
		if v := g.Decide(c.call); v.Decision != c.want {
			t.Errorf("%s under a ban on %s: %s (%s), want %s", c.call.Input, c.ban, v.Decision, v.Reason, c.want)
		}
	}
	if g := gate(t, Rules{Deny: []string{"Read(../**)"}, Cwd: ws}); !g.MayRead(ws+"/a.txt") || g.MayRead(sibling+"/f") {
		t.Error("searches do not keep to the ban")
	}
}
