package home

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// powerVariable makes this test binary the program that [TestPower] watches.
const powerVariable = "HOME_TEST_POWER"

// bePowered makes a session below a folder, and says so.
func bePowered(dir string) error {
	s := At(filepath.Join(dir, "some", "state")).Project(dir).Session("s00000001")
	if err := s.Ensure(); err != nil {
		return err
	}
	if err := s.WriteInfo([]byte("{}\n")); err != nil {
		return err
	}
	_, err := os.Stdout.WriteString("made\n")
	return err
}

// What a power cut can take of a session that has just been made: nothing. Every
// folder and file is on the disk, and so is its name, before that is said.
func TestPower(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not here: nothing is known of power cuts")
	}
	dir := t.TempDir()
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-y", "-o", trace, "-e", "trace=mkdirat,openat,openat2,write,fsync,renameat", os.Args[0])
	cmd.Env = append(os.Environ(), powerVariable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("strace may not look at processes here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	d := disk{below: dir, files: map[string]bool{}, names: map[string]bool{}}
	calls := bufio.NewScanner(bytes.NewReader(data))
	calls.Buffer(nil, 1<<20)
	for calls.Scan() && !d.said {
		d.take(calls.Text())
	}
	want := []string{"/some", "/some/state", "/some/state/projects", "/folder", "/s00000001", "/tasks", "/subagents", "/remote", "/session.json"}
	for _, name := range want {
		if !slices.ContainsFunc(d.made, func(path string) bool { return strings.HasSuffix(path, name) }) {
			t.Errorf("%s was not seen to be made: %q", name, d.made)
		}
	}
	if !d.said || len(d.files)+len(d.names) > 0 {
		t.Errorf("said: %v; files that are not on the disk: %v, names: %v", d.said, d.files, d.names)
	}
}

// disk is what is not on it yet.
type disk struct {
	below string
	files map[string]bool // with content that a power cut takes
	names map[string]bool // that it takes
	made  []string
	said  bool
}

func (d *disk) take(line string) {
	call := regexp.MustCompile(`^\d+ +(\w+)\((.*)`).FindStringSubmatch(line)
	if call == nil || strings.Contains(line, " = -1 ") {
		return
	}
	words := regexp.MustCompile(`<(/[^>]*)>|"((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(call[2], -1)
	paths := []string{}
	for _, w := range words {
		paths = append(paths, w[1]+w[2])
	}
	switch call[1] {
	case "write":
		if d.said = strings.HasPrefix(call[2], "1<") && strings.Contains(call[2], `"made\n"`); !d.said && len(words) > 0 {
			d.dirty(paths[0])
		}
	case "fsync":
		delete(d.files, paths[0])
		for name := range d.names {
			if filepath.Dir(name) == paths[0] {
				delete(d.names, name)
			}
		}
	case "mkdirat":
		d.name(filepath.Join(paths[0], paths[1]))
	case "renameat":
		from, to := filepath.Join(paths[0], paths[1]), filepath.Join(paths[2], paths[3])
		delete(d.names, from)
		if d.files[from] {
			delete(d.files, from)
			d.files[to] = true
		}
		d.name(to)
	}
}

func (d *disk) dirty(path string) {
	if strings.HasPrefix(path, d.below) {
		d.files[path] = true
	}
}

func (d *disk) name(path string) {
	if strings.HasPrefix(path, d.below) {
		d.names[path] = true
		d.made = append(d.made, path)
	}
}

// What a power cut has left of the file that says whose a project is: it is written
// anew, and what says another folder is not.
func TestFolderAfterPowerCut(t *testing.T) {
	for name, c := range map[string]struct {
		left []byte
		anew bool
	}{
		"empty": {nil, true}, "zeros": {make([]byte, 30), true}, "torn": {[]byte("/some"), true}, "a line": {[]byte("\n"), true}, "zeros behind": {[]byte("/some\x00\x00\n"), true},
		"another": {[]byte("/some\n"), false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			root := At(t.TempDir())
			p := root.Project(t.TempDir())
			if err := p.Ensure(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.folderFile(), c.left, 0o600); err != nil {
				t.Fatal(err)
			}
			if all, err := root.Projects(); err != nil || len(all) != 0 {
				t.Errorf("before: %v, %v", all, err)
			}
			if err := p.Session(task.NewSessionID()).Ensure(); (err == nil) != c.anew {
				t.Errorf("a session: %v", err)
			}
			all, err := root.Projects()
			if err != nil || (len(all) == 1 && all[0] == p) != c.anew {
				t.Errorf("after: %v, %v", all, err)
			}
		})
	}
}
