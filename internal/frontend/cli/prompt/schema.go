package prompt

import (
	"errors"
	"fmt"
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
	text, err := a.ReadFile(p.Schema, maxSchemaFile)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return console.Usage(fmt.Sprintf("--json-schema: file %s: %v", p.Schema, err),
			"name a file with a JSON schema, or give the schema itself")
	}
	p.Schema = string(text)
	return nil
}
