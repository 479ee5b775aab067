package home

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/task"
)

func TestNewReport(t *testing.T) {
	project := At(t.TempDir()).Project(t.TempDir())
	s := project.Session(task.NewSessionID())
	if err := s.Ensure(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ title, want string }{
		{"How does the Lock work?", "how-does-the-lock-work.md"},
		{"How does the Lock work?", "how-does-the-lock-work-2.md"},
		{"../../etc/passwd", "etc-passwd.md"},
		{"ü?", "report.md"},
		{"one two three four five six seven eight nine ten eleven twelve", "one-two-three-four-five-six-seven-eight-nine-ten.md"},
	} {
		got, err := s.NewReport(c.title)
		if err != nil || got != filepath.Join(s.Reports(), c.want) {
			t.Errorf("%q: %s, %v, want %s", c.title, got, err, c.want)
		}
		if err := os.WriteFile(got, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
