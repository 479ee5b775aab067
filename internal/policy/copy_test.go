package policy

import (
	"os"
	"path/filepath"
	"testing"
)

// In a copy of the project the bans of the project hold, however they are
// written, and they go on to hold in the project.
func TestCopies(t *testing.T) {
	proj := workspace(t, "")
	top := filepath.Dir(proj)
	at := filepath.Join(top, "copy")
	inner := filepath.Join(top, "inner")
	link := filepath.Join(top, "link")
	if err := os.Symlink(proj, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{proj, at, inner} {
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sub", "key.txt"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, ban := range []string{"Read(sub/key.txt)", "Read(./sub/key.txt)", "Read(key.txt)", "Read(" + proj + "/sub/key.txt)", "Read(" + proj + "/sub)",
		"Read(" + top + "/*/sub/key.*)", "Read(" + top + "/pr*/{sub,x/y}/**)", "Read(~/proj/sub/key.txt)", "Read(" + link + "/sub/key.txt)"} {
		for list, want := range map[string]Outcome{"deny": Deny, "ask": Ask} {
			r := Rules{Mode: Bypass, Cwd: inner, Base: proj, Home: top, Dirs: []string{top}, Copies: []Copy{{Of: proj, At: at}, {Of: at, At: inner}},
				Allow: []string{"Read", "Bash"}}
			if r.Deny = []string{ban}; list == "ask" {
				r.Ask, r.Deny = r.Deny, nil
			}
			g := gate(t, r)
			for _, dir := range []string{proj, at, inner} {
				file := filepath.Join(dir, "sub", "key.txt")
				if v := g.Decide(call("Read", "file_path", file)); v.Decision != want {
					t.Errorf("%s %s: reading %s is %s", list, ban, file, v.Decision)
				}
				if v := g.Decide(bash("cat " + file)); v.Decision != want {
					t.Errorf("%s %s: cat %s is %s", list, ban, file, v.Decision)
				}
				if g.MayRead(file) {
					t.Errorf("%s %s: %s may be listed", list, ban, file)
				}
			}
			if v := g.Decide(call("Read", "file_path", at+"2/sub/key.txt")); ban == "Read(sub/key.txt)" && v.Decision != Allow {
				t.Errorf("%s %s: it holds beside the copy: %s", list, ban, v.Decision)
			}
			if v := g.Decide(call("Read", "file_path", filepath.Join(inner, "other"))); v.Decision != Allow {
				t.Errorf("%s %s: it holds for another file of the copy: %s", list, ban, v.Decision)
			}
		}
	}
}
