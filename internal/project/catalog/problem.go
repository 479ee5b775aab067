package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/internal/platform/frontmatter"
)

// Severity is the cost of a [Problem].
type Severity string

// The severities.
const (
	Note    Severity = "note"    // good to know
	Warning Severity = "warning" // something is not as its author meant
	Error   Severity = "error"   // the definition is not loaded, or not as the file has it now
)

// Problem is something about a file that the user should know.
type Problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // from 1; 0: none
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Fix      string   `json:"fix,omitempty"` // how to fix it
}

// String is one line in the form of compilers. What comes from files is in it as
// it is: whoever shows it makes it harmless.
func (p Problem) String() string {
	at := p.File
	if p.Line > 0 {
		at += ":" + strconv.Itoa(p.Line)
	}
	s := fmt.Sprintf("%s: %s: %s", at, p.Severity, p.What)
	if p.Fix != "" {
		s += " (" + p.Fix + ")"
	}
	return s
}

// bent returns the problem for a repair that the reader of front matter made.
func bent(file string, w frontmatter.Warning) Problem {
	return Problem{File: file, Line: w.Line, Severity: Warning, What: w.Text, Fix: mendOf(w.Text)}
}

func mendOf(text string) string {
	for _, m := range []struct{ has, fix string }{
		{"not YAML", "put the value into quotes, or below its key as a block that begins with |"},
		{"comes twice", "take one of them out"},
		{"a tab", "use blanks"},
		{"alias", "write what it stands for"},
		{"before the first key", "begin the line with a key and a colon"},
	} {
		if strings.Contains(text, m.has) {
			return m.fix
		}
	}
	return ""
}

// refused is front matter that cannot be read at all.
func refused(file string, err error) Problem {
	p := Problem{File: file, Severity: Error, What: err.Error()}
	if rest, ok := strings.CutPrefix(p.What, "line "); ok {
		number, text, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			p.Line, p.What = n, text
		}
	}
	if what, fix, ok := strings.Cut(strings.TrimSuffix(p.What, ")"), " (write "); ok {
		p.What, p.Fix = what, "write "+fix
	}
	if errors.Is(err, frontmatter.ErrTooLarge) {
		p.Fix = "make it shorter"
	}
	return p
}
