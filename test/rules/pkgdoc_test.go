package rules

import (
	"path"
	"strings"
	"testing"
)

// Every package says once what it owns, promises and does not do. `go doc`
// shows a second comment behind the first, in the order of file names.
func TestPackageComments(t *testing.T) {
	for name, p := range theTree(t).folders {
		if len(p.prod) == 0 {
			continue
		}
		var files []string
		for _, s := range p.prod {
			text := s.file.Doc.Text()
			if text == "" {
				continue
			}
			files = append(files, s.path)
			want := "Package " + s.file.Name.Name + " "
			if s.file.Name.Name == "main" {
				want = "Command " + path.Base(name) + " "
			}
			if !strings.HasPrefix(text, want) {
				t.Errorf("%s: the package comment begins %.30q, want %q", s.path, text, want)
			}
		}
		if len(files) != 1 {
			t.Errorf("%s has %d package comments %v, want one", name, len(files), files)
		}
	}
}
