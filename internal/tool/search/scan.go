package search

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/internal/tool/confine"
)

// scan searches without help from other programs.
func scan(ctx context.Context, p confine.Place, q query, take func(line) bool) error {
	flags := "m"
	if q.noCase {
		flags += "i"
	}
	if q.multiline {
		flags += "s"
	}
	re, err := regexp.Compile("(?" + flags + ")" + q.pattern)
	if err != nil {
		return fmt.Errorf("the pattern is not a regular expression: %w", err)
	}
	names, err := list(ctx, p)
	if err != nil {
		return err
	}
	root, err := p.Open()
	if err != nil {
		return missing(err)
	}
	defer func() { _ = root.Close() }()
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if name != "." && !q.wanted(name) {
			continue
		}
		data, ok := load(root, under(p, name))
		if ok && !emit(filepath.Join(p.Path(), name), data, re, q, take) {
			return nil
		}
	}
	return nil
}

// load reads a file that is worth a search: regular, text, not too large.
func load(root *os.Root, name string) ([]byte, bool) {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, false
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	return data, err == nil && bytes.IndexByte(data, 0) < 0
}

// emit hands on the lines of one file, and reports whether more are wanted.
func emit(path string, data []byte, re *regexp.Regexp, q query, take func(line) bool) bool {
	text := strings.TrimSuffix(string(data), "\n")
	if text == "" && len(data) == 0 {
		return true
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	hits := matching(lines, re, q)
	next := 0 // the first line that was not handed on
	for i, hit := range hits {
		if !hit {
			continue
		}
		for ; next < i+q.after+1 && next < len(lines); next++ {
			if next < i-q.before {
				next = i - q.before
			}
			if !take(line{path: path, n: next + 1, text: lines[next], match: hits[next]}) {
				return false
			}
		}
	}
	return true
}

// matching says of each line whether a match touches it.
func matching(lines []string, re *regexp.Regexp, q query) []bool {
	hits := make([]bool, len(lines))
	if !q.multiline {
		for i, l := range lines {
			if hits[i] = re.MatchString(l); hits[i] && q.hitsPer == 1 {
				break
			}
		}
		return hits
	}
	text := strings.Join(lines, "\n")
	at, pos := 0, 0 // the line at and where it begins
	for _, m := range re.FindAllStringIndex(text, -1) {
		for at < len(lines)-1 && pos+len(lines[at]) < m[0] {
			pos += len(lines[at]) + 1
			at++
		}
		hits[at] = true
		for end := pos + len(lines[at]) + 1; end < m[1] && at < len(lines)-1; end += len(lines[at]) + 1 {
			pos = end
			at++
			hits[at] = true
		}
	}
	return hits
}
