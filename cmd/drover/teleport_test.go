package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// carry copies an archive from one place to another.
func carry(t *testing.T, from, to *place, file string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from.dir, file))
	if err == nil {
		err = os.WriteFile(filepath.Join(to.dir, file), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTeleport carries a session to another machine, which is another place here.
func TestTeleport(t *testing.T) {
	bin := build(t)
	const key = "sk-0123456789-secret"
	// talk has a conversation at a place, in which an agent works and a key is said.
	talk := func(t *testing.T, p *place) (session string) {
		p.env = append(p.env, "OTHER_API_KEY="+key, "EDITOR=ed")
		p.file(".claude/agents/finder.md", "---\nname: finder\ndescription: Finds.\n---\nFind.\n")
		p.model(map[string][]step{"main": {calls("TaskCreate", map[string]any{"subject": "fix the roof", "description": "of the house"}),
			calls("Agent", asks("finder", "look", "run_in_background", true)), says("the answer was " + key), says("the finder has found it")},
			"finder": {says("found behind the shed")}})
		r := p.run("-p", "remember the word walrus", "--output-format=json")
		if r.code != 0 {
			t.Fatal(r.stderr)
		}
		all := r.objects(t)
		session, _ = all[len(all)-1]["session_id"].(string)
		return session
	}
	for name, test := range map[string]func(t *testing.T, here, there *place){
		"carried": func(t *testing.T, here, there *place) {
			old := talk(t, here)
			r := here.run("teleport", "export", old)
			if r.code != 0 || r.stdout() != old+".drover.tar.gz" || !strings.Contains(r.stderr, "left out") {
				t.Fatalf("exit code %d: %s, %s", r.code, r.stdout(), r.stderr)
			}
			carry(t, here, there, r.stdout())
			m := there.model(map[string][]step{"main": {says("walrus, of course"), says("still walrus")}})
			in := there.run("teleport", "import", r.stdout(), "--into", there.dir)
			id := in.stdout()
			alias := regexp.MustCompile(`teleport_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`).FindString(in.stderr)
			if in.code != 0 || id == old || alias == "" {
				t.Fatalf("exit code %d: %q, %s", in.code, id, in.stderr)
			}
			if got := there.good("-p", "which word?", "--resume", old).stdout(); got != "walrus, of course" {
				t.Errorf("stdout %q", got)
			}
			said := strings.Join(texts(t, m.Requests()[0]), "\n")
			holds(t, "the request", said, "remember the word walrus", "the answer was [left out: OTHER_API_KEY]", "found behind the shed", "which word?")
			if strings.Contains(said, key) {
				t.Error("the key travels")
			}
			if got := there.good("-p", "again?", "--resume", alias).stdout(); got != "still walrus" {
				t.Errorf("by the alias %q", got)
			}
			if said := strings.Join(texts(t, m.Requests()[1]), "\n"); !strings.Contains(said, "walrus, of course") {
				t.Errorf("the second request says %s", said)
			}
			for _, o := range there.tasks("-a") {
				if o["teleported_from"] != old || o["session_id"] != id || o["status"] != "completed" {
					t.Errorf("task %v", o)
				}
			}
			if tasks := there.tasks("-a"); len(tasks) != 1 || there.good("result", tasks[0]["task_id"].(string)).stdout() != "found behind the shed" {
				t.Errorf("tasks %v", tasks)
			}
			if got := there.good("todo", "list", "--list", id).stdout(); !strings.Contains(got, "fix the roof") {
				t.Errorf("to-dos %s", got)
			}
		},
		"same": func(t *testing.T, p, _ *place) {
			old := talk(t, p)
			p.run("teleport", "export", old, "-o", "a.tgz")
			id := p.run("teleport", "import", "a.tgz").stdout() // into the folder that it names
			m := p.model(map[string][]step{"main": {says("the old one"), says("the new one")}})
			p.good("-p", "one", "--resume", old)
			p.good("-p", "two", "--resume", id)
			if said := strings.Join(texts(t, m.Requests()[1]), "\n"); strings.Contains(said, "the old one") || !strings.Contains(said, "walrus") {
				t.Errorf("an ID that both have means the carried session: %s", said)
			}
		},
		"folders": func(t *testing.T, here, there *place) {
			old := talk(t, here)
			here.run("teleport", "export", old, "-o", "with.tgz")
			here.run("teleport", "export", old, "-o", "without.tgz", "--cwd-sync=false")
			if err := os.Rename(here.dir, here.dir+"-gone"); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"with.tgz", "without.tgz"} {
				data, err := os.ReadFile(filepath.Join(here.dir+"-gone", file))
				if err == nil {
					err = os.WriteFile(filepath.Join(there.dir, file), data, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			there.fails(2, []string{"teleport", "import", "with.tgz"}, "folder "+here.dir+" does not exist", "--into")
			there.fails(2, []string{"teleport", "import", "with.tgz", "--into", "nowhere"}, "nowhere")
			if r := there.run("teleport", "import", "without.tgz"); r.code != 0 || !strings.Contains(r.stderr, there.dir) {
				t.Errorf("exit code %d: %s", r.code, r.stderr)
			}
			if err := os.Rename(here.dir+"-gone", here.dir); err != nil {
				t.Fatal(err)
			}
		},
		"variables": func(t *testing.T, here, there *place) {
			old := talk(t, here)
			here.fails(2, []string{"teleport", "export", old, "--env", "EDITOR"}, "--env-sync")
			here.fails(2, []string{"teleport", "export", old, "--env-sync", "--env", "OTHER_API_KEY"}, "OTHER_API_KEY", "secret")
			here.fails(2, []string{"teleport", "export", old, "--env-sync", "--env", "NOT_SET"}, "NOT_SET")
			here.run("teleport", "export", old, "--env-sync", "--env", "EDITOR", "-o", "a.tgz")
			carry(t, here, there, "a.tgz")
			if r := there.run("teleport", "import", "a.tgz", "--into", "."); r.code != 0 || !strings.Contains(r.stderr, "EDITOR=ed") {
				t.Errorf("exit code %d: %s", r.code, r.stderr)
			}
		},
		"refused": func(t *testing.T, p, _ *place) {
			free := make(chan struct{})
			p.model(map[string][]step{"main": {held(free, says("done"))}})
			r := p.start("-p", "wait", "--output-format=stream-json")
			var id string
			if !within(patience, func() bool {
				var all []object
				if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
					t.Fatal(err)
				}
				for _, s := range all {
					id, _ = s["session_id"].(string)
					return s["live"] == true
				}
				return false
			}) {
				t.Fatal("no session")
			}
			p.fails(1, []string{"teleport", "export", id}, "it is live")
			close(free)
			r.wait()
			p.good("teleport", "export", id, "-o", "a.tgz")
			p.fails(1, []string{"teleport", "export", id, "-o", "a.tgz"}, "a.tgz: the file exists")
			p.fails(3, []string{"teleport", "export", "s99999999"}, "no session \"s99999999\"")
			p.fails(2, []string{"teleport", "export"}, "an argument is missing")
			p.fails(2, []string{"teleport", "import", "none.tgz"}, "none.tgz")
			p.file("bad.tgz", "this is no archive")
			p.fails(1, []string{"teleport", "import", "bad.tgz"}, "no gzip file")
			p.userSettings(object{"teleport": object{"enabled": false}})
			p.fails(1, []string{"teleport", "export", id, "-o", "b.tgz"}, "turned off")
			p.fails(1, []string{"teleport", "import", "a.tgz"}, "turned off")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin), newPlace(t, bin))
		})
	}
}
