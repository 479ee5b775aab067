package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/project"
)

// Export writes the conversation of a session; of a live one, the conversation so far.
func (b storage) Export(_ context.Context, out io.Writer, info control.Info, form project.Form) error {
	path := b.root.Project(info.Project).Session(info.Session).Transcript()
	if form == project.Markdown {
		return agent.WriteMarkdown(out, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read transcript: %w", err)
	}
	defer f.Close()
	if form == project.JSONL {
		_, err = io.Copy(out, f)
	} else {
		err = array(out, f)
	}
	if err != nil {
		return fmt.Errorf("export session %s: %w", info.Session, err)
	}
	return nil
}

// array writes lines of JSON as one array. A line that is not whole, as a crash
// may leave at the end, is passed over, as the next host does.
func array(out io.Writer, lines io.Reader) error {
	in, w := bufio.NewReader(lines), bufio.NewWriter(out)
	between := "[\n"
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if bytes.HasSuffix(line, []byte("\n")) && json.Valid(line) {
			_, _ = w.WriteString(between) // the writer keeps its first error
			_, _ = w.Write(line[:len(line)-1])
			between = ",\n"
		}
		if err == io.EOF {
			break
		}
	}
	if between == "[\n" {
		_, _ = w.WriteString("[")
	}
	_, _ = w.WriteString("\n]\n")
	return w.Flush()
}
