package project

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// TestTodoList: without a name it is the list of this folder and its sessions
// that was changed last.
func TestTodoList(t *testing.T) {
	a := &app{Console: console.Console{Cwd: t.TempDir(), Root: home.At(t.TempDir()), Stderr: os.Stderr, Folder: noSettings{}}}
	a.Env = []string{"HOME=" + t.TempDir()}
	project := a.Root.Project(a.Cwd)
	folder := filepath.Base(project.Dir())
	first, second, stranger := task.ID("s00000001"), task.ID("s00000002"), task.ID("s00000003")
	for id, p := range map[task.ID]home.Project{first: project, second: project, stranger: a.Root.Project(t.TempDir())} {
		if err := p.Session(id).Ensure(); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for i, step := range []struct{ change, want string }{
		{"", folder},
		{string(stranger), folder},
		{string(first), string(first)},
		{string(second), string(second)},
		{folder, folder},
		{string(first), string(first)},
		{"team", string(first)},
	} {
		if step.change != "" {
			dir := a.Root.Todos(step.change)
			if _, err := todo.At(dir, false).Create(t.Context(), todo.Draft{Subject: "x"}); err != nil {
				t.Fatal(err)
			}
			at := now.Add(time.Duration(i) * time.Second) // the clock of files may be coarse
			if err := os.Chtimes(dir, at, at); err != nil {
				t.Fatal(err)
			}
		}
		if _, name, err := a.openTodos(""); err != nil || name != step.want {
			t.Errorf("after a change of %q it is %q, %v; want %q", step.change, name, err, step.want)
		}
	}
	a.Env = append(a.Env, todo.NameVariable+"=team")
	for flag, want := range map[string]string{"": "team", "other": "other"} {
		if _, name, err := a.openTodos(flag); err != nil || name != want {
			t.Errorf("--list %q: %q, %v", flag, name, err)
		}
	}
}

// noSettings is a backend that has the settings of nobody.
type noSettings struct{ console.Folder }

func (noSettings) Settings(string) (settings.Settings, error) { return settings.Settings{}, nil }
