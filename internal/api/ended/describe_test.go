package ended

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// What is described anew says what the log and the folder tell, and can be removed
// also before that.
func TestDescribe(t *testing.T) {
	began, ended := time.Unix(1000, 0).UTC(), time.Now().Add(time.Hour).UTC()
	for role, mark := range map[string]func(home.Session) (path, text string){
		control.RoleRun:        func(s home.Session) (string, string) { return s.Output("b00000001"), "hello" },
		control.RolePrompt:     func(s home.Session) (string, string) { return s.Transcript(), "" },
		control.RoleBackground: func(s home.Session) (string, string) { return s.Project().BackgroundFile(), string(s.ID()) + "\n" },
	} {
		t.Run(role, func(t *testing.T) {
			place := home.At(t.TempDir()).Project(t.TempDir()).Session("s00000001")
			if err := place.Ensure(); err != nil {
				t.Fatal(err)
			}
			path, text := mark(place)
			for file, text := range map[string]string{path: text, place.InfoFile(): ""} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			j, err := journal.Open(place.DB(), journal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []task.ID{"b00000001", place.ID()} {
				r := task.Record{ID: id, Run: task.RunID(id), Kind: task.LocalBash, Status: task.Completed, Description: "of " + string(id), CreateTime: began, EndTime: &ended}
				if _, err := j.Append(t.Context(), lifecycle.Entry{Verb: task.Complete, Task: r}); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			p := Session{Place: place, Info: control.Info{Session: place.ID(), Project: place.Project().Folder(), StartTime: time.Now().UTC(), Damaged: true}}
			if err := p.Describe(t.Context(), "1.2.3"); err != nil {
				t.Fatal(err)
			}
			got, err := stored.ReadInfo(place)
			if err != nil {
				t.Fatal(err)
			}
			if got.DiskBytes == 0 || got.OutputBytes != int64(len(text)) && role == control.RoleRun {
				t.Errorf("%d bytes, %d of outputs", got.DiskBytes, got.OutputBytes)
			}
			got.DiskBytes, got.OutputBytes = 0, 0
			want := control.Info{Session: place.ID(), Project: place.Project().Folder(), Title: "of s00000001", Role: role, Version: "1.2.3",
				StartTime: began, EndTime: &ended, Tasks: control.Counts{Total: 2}}
			a, _ := json.Marshal(got)
			if b, _ := json.Marshal(want); string(a) != string(b) {
				t.Errorf("%s\nwant %s", a, b)
			}
			if r, err := p.Remove(t.Context(), true); err != nil || r.Kept == "" {
				t.Errorf("removing what was described meanwhile: %+v, %v", r, err)
			}
			if err := os.Remove(place.InfoFile()); err != nil {
				t.Fatal(err)
			}
			if r, err := p.Remove(t.Context(), true); err != nil || r.Kept != "" {
				t.Errorf("removing it: %+v, %v", r, err)
			}
		})
	}
}
