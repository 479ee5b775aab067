package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/confine"
)

// ripgrep is where rg is; empty: it is not there, or not wanted.
func (f finder) ripgrep() string {
	path, err := exec.LookPath(f.rg)
	if err != nil {
		return ""
	}
	return path
}

// ask lets ripgrep search, and reads its answer in JSON so that the form of
// ours does not depend on it.
func ask(ctx context.Context, rg string, p confine.Place, q query, take func(line) bool) error {
	dir, name, err := split(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, rg, arguments(q, name)...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	said := &head{most: 4096}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run rg: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run rg: %w", err)
	}
	enough, err := receive(out, dir, take)
	if enough || err != nil {
		cancel()
	}
	ended := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case enough || ctx.Err() != nil && err == nil:
		return nil
	case err != nil:
		return err
	case ended == nil:
		return nil
	case errors.As(ended, &exit) && exit.ExitCode() == 1: // nothing found
		return nil
	case errors.As(ended, &exit) && said.b.Len() == 0: // files that could not be read
		return nil
	}
	return fmt.Errorf("rg: %s", excerpt.Line(said.b.String(), 400))
}

// split returns the folder in which rg starts, and the name that it searches there.
func split(p confine.Place) (dir, name string, err error) {
	root, err := p.Open()
	if err != nil {
		return "", "", missing(err)
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(p.Rel)
	if err != nil {
		return "", "", missing(err)
	}
	if info.IsDir() {
		return p.Path(), ".", nil
	}
	if !info.Mode().IsRegular() {
		return "", "", errNotFile
	}
	return filepath.Dir(p.Path()), filepath.Base(p.Path()), nil
}

func arguments(q query, name string) []string {
	args := []string{"--json", "--no-config", "--no-messages", "--hidden", "--sort=path", "--crlf",
		"--max-filesize=" + strconv.Itoa(maxFile)}
	if q.glob != "" {
		args = append(args, "--glob="+q.glob)
	}
	args = append(args, "--glob=!.git")
	if q.noCase {
		args = append(args, "--ignore-case")
	}
	if q.multiline {
		args = append(args, "--multiline", "--multiline-dotall")
	}
	if q.hitsPer > 0 {
		args = append(args, "--max-count="+strconv.Itoa(q.hitsPer))
	}
	return append(args, "--before-context="+strconv.Itoa(q.before), "--after-context="+strconv.Itoa(q.after),
		"--regexp="+q.pattern, "--", name)
}

// event is one line of rg --json.
type event struct {
	Type string `json:"type"`
	Data struct {
		Path  bytesOrText `json:"path"`
		Lines bytesOrText `json:"lines"`
		Line  int         `json:"line_number"`
	} `json:"data"`
}

// bytesOrText is text, or bytes where it is not UTF-8.
type bytesOrText struct {
	Text  string `json:"text"`
	Bytes []byte `json:"bytes"`
}

func (b bytesOrText) String() string {
	if b.Bytes != nil {
		return string(b.Bytes)
	}
	return b.Text
}

// receive reads events until the end or until take has enough.
func receive(r io.Reader, dir string, take func(line) bool) (enough bool, err error) {
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("read the answer of rg: %w", err)
		}
		if e.Type != "match" && e.Type != "context" {
			continue
		}
		path := filepath.Join(dir, e.Data.Path.String())
		for i, text := range strings.Split(strings.TrimSuffix(e.Data.Lines.String(), "\n"), "\n") {
			l := line{path: path, n: e.Data.Line + i, text: strings.TrimSuffix(text, "\r"), match: e.Type == "match"}
			if !take(l) {
				return true, nil
			}
		}
	}
}

// head keeps the beginning of the data written to it.
type head struct {
	b    bytes.Buffer
	most int
}

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), max(0, h.most-h.b.Len()))])
	return len(p), nil
}
