package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// slashCommand is a command as it is written in a text for models.
var slashCommand = regexp.MustCompile("`/[a-z]+`")

// A model cannot type a slash command, and the user may have none: the texts that models
// read name tools and commands of the shell.
func TestPrompts(t *testing.T) {
	texts := 0
	for _, folder := range []string{"agent", "internal", "subagent"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.Name() == "testdata":
				return fs.SkipDir
			case !strings.HasSuffix(path, ".md"):
				return nil
			}
			texts++
			text, err := os.ReadFile(path)
			if found := slashCommand.Find(text); found != nil {
				t.Errorf("%s names %s", path, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if texts < 30 {
		t.Errorf("only %d texts were found", texts)
	}
}
