package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	flow "github.com/drover-dev/drover/internal/project/workflowfile"
)

// A step is judged with the folder in which it runs and what it sets, also within another
// workflow; a value that is computed later is no text of the line.
func TestEachStep(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"outer.yaml": "name: outer\nsteps:\n  - {id: make, shell: make all, cwd: sub dir, env: {A: x y}}\n  - {id: inner, workflow: inner.yaml, cwd: /other}\n",
		"inner.yaml": "name: inner\nsteps:\n  - {id: look, agent: {type: explore, prompt: look}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := compile(filepath.Join(dir, "outer.yaml"), flow.Read)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = eachStep(plan, "/work", func(s judgedStep) error {
		c, ok := s.call("1")
		got = append(got, strings.Join([]string{s.Where, s.Dir, c.Name, string(c.Input)}, " | "))
		if ok == (s.Workflow != nil) {
			t.Errorf("%s: it does something by itself: %v", s.Where, ok)
		}
		return nil
	})
	want := []string{
		`make | /work/sub dir | Bash | {"command":"cd '/work/sub dir'\nexport A='x y'\nmake all","description":"step make"}`,
		`inner | /other |  | `,
		`inner/look | /other | Agent | {"description":"step inner/look","prompt":"look","subagent_type":"explore"}`,
	}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\n%v", strings.Join(got, "\n"), err)
	}
	if _, err := compile(filepath.Join(dir, "none.yaml"), flow.Read); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}
