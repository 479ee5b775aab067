package services

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// A service is found by its name, with the token of its own variable only, or by its
// address; what is wrong is said before anything is recorded.
func TestJob(t *testing.T) {
	s := New(Config{Usual: "cloud", Services: map[string]Service{"cloud": {URL: "https://one.example", TokenEnv: "ONE"}, "open": {URL: "https://two.example"}},
		Token: func(name string) string { return map[string]string{"ONE": "of-the-session"}[name] }})
	defer s.Close()
	for name, c := range map[string]struct {
		req  control.RemoteRequest
		says string
	}{
		"usual":   {control.RemoteRequest{Prompt: "x"}, ""},
		"named":   {control.RemoteRequest{Service: "open"}, ""},
		"address": {control.RemoteRequest{Service: "https://three.example"}, ""},
		"unknown": {control.RemoteRequest{Service: "nowhere"}, "is not in the settings"},
		"type":    {control.RemoteRequest{Service: "open", Type: "no such type"}, "type"},
	} {
		job, open, err := s.Job(c.req, nil)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, job, err)
		}
		if err == nil {
			if _, err := open(job.Service); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	s.cfg.Token = nil
	if _, _, err := s.Job(control.RemoteRequest{}, nil); err == nil || !strings.Contains(err.Error(), "the variable ONE") {
		t.Errorf("without its token: %v", err)
	}
	if _, _, err := s.Job(control.RemoteRequest{}, []string{"ONE=of-the-client"}); err != nil {
		t.Errorf("with the token of the client: %v", err)
	}
}

// Sidecars of work that has ended are removed, and no others.
func TestRemoveSidecars(t *testing.T) {
	place := home.At(filepath.Join(t.TempDir(), "state")).Project(t.TempDir()).Session(task.NewSessionID())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	ended, live := place.RemoteFile("r00000001"), place.RemoteFile("r00000002")
	if err := os.MkdirAll(filepath.Dir(ended), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{ended, live} {
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	RemoveSidecars(place, func(id task.ID) bool { return id == "r00000001" })
	if _, err := os.Lstat(ended); !os.IsNotExist(err) {
		t.Errorf("that of ended work: %v", err)
	}
	if _, err := os.Lstat(live); err != nil {
		t.Errorf("that of live work: %v", err)
	}
}
