package prompt

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// maxSchemaFile is the most that a file with a JSON schema may hold.
const maxSchemaFile = 1 << 20

// readSchema puts the text of the file that --json-schema names in its place.
func (a *App) readSchema(p *Prompt) error {
	if p.Schema == "" || strings.HasPrefix(strings.TrimSpace(p.Schema), "{") {
		return nil
	}
	name := a.Path(p.Schema)
	const fix = "name a file with a JSON schema, or give the schema itself"
	f, err := os.Open(name)
	if err != nil {
		return console.Usage(fmt.Sprintf("--json-schema: %v", err), fix)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSchemaFile+1))
	switch {
	case err != nil:
		return console.Usage(fmt.Sprintf("--json-schema: %v", err), fix)
	case len(text) > maxSchemaFile:
		return console.Usage(fmt.Sprintf("--json-schema: file %s has more than %d MiB", p.Schema, maxSchemaFile>>20), fix)
	case strings.TrimSpace(string(text)) == "":
		return console.Usage(fmt.Sprintf("--json-schema: file %s is empty", p.Schema), fix)
	}
	p.Schema = string(text)
	return nil
}
