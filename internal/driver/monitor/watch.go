package monitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Watch is the input of a task. It names one thing to watch: a command, which is
// Args or Line, a File, or the resource URI of Server.
type Watch struct {
	Args   []string `json:"args,omitempty"` // a program with its arguments
	Line   string   `json:"line,omitempty"` // run by bash -c
	Cwd    string   `json:"cwd,omitempty"`  // of the command; absolute; empty: the host's
	File   string   `json:"file,omitempty"` // absolute; it need not be there yet, but its folder must
	Server string   `json:"server,omitempty"`
	URI    string   `json:"uri,omitempty"`
	Match  string   `json:"match,omitempty"` // a regular expression (RE2) for the lines that count; empty: all
}

// maxMatch bounds the regular expression, in bytes.
const maxMatch = 4096

// argv returns the program to start with its arguments; nil: the source is not a command.
func (w Watch) argv() []string {
	if w.Line != "" {
		return []string{"bash", "-c", w.Line}
	}
	return w.Args
}

// Subject describes the source of the watch in a line for people.
func (w Watch) Subject() string {
	switch {
	case w.File != "":
		return w.File
	case w.Server != "":
		return w.Server + " " + w.URI
	case w.Line != "":
		return w.Line
	}
	return strings.Join(w.Args, " ")
}

func parse(input json.RawMessage) (w Watch, match *regexp.Regexp, err error) {
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return w, nil, fmt.Errorf("read what to watch: %w", err)
	}
	if err := w.check(); err != nil {
		return w, nil, fmt.Errorf("read what to watch: %w", err)
	}
	if w.Match == "" {
		return w, nil, nil
	}
	if len(w.Match) > maxMatch {
		return w, nil, fmt.Errorf("read what to watch: the regular expression has %d bytes, more than %d", len(w.Match),
			maxMatch)
	}
	if match, err = regexp.Compile(w.Match); err != nil {
		return w, nil, fmt.Errorf("read what to watch: %w", err)
	}
	return w, match, nil
}

func (w Watch) check() error {
	named := 0
	for _, is := range []bool{len(w.Args) > 0, w.Line != "", w.File != "", w.Server != "" || w.URI != ""} {
		if is {
			named++
		}
	}
	switch {
	case named != 1:
		return errors.New("name one thing: a command, a file, or a resource of an MCP server")
	case len(w.Args) > 0 && w.Args[0] == "":
		return errors.New("the command is empty")
	case (w.Server == "") != (w.URI == ""):
		return errors.New("a resource needs both a server and a URI")
	case w.File != "" && (!filepath.IsAbs(w.File) || w.File != filepath.Clean(w.File) || w.File == "/"):
		return fmt.Errorf("the file %.200q is not an absolute path", w.File)
	case w.Cwd != "" && !filepath.IsAbs(w.Cwd):
		return fmt.Errorf("the working folder %.200q is not absolute", w.Cwd)
	}
	for _, s := range append([]string{w.Line, w.Cwd, w.File, w.Server, w.URI}, w.Args...) {
		if strings.ContainsRune(s, 0) {
			return errors.New("it holds a NUL byte")
		}
	}
	return nil
}
