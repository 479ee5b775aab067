package files

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
)

const readSchema = `{"type":"object","properties":{` +
	`"file_path":{"type":"string","description":"The file"},` +
	`"offset":{"type":"integer","minimum":1,"description":"The first line, counted from 1"},` +
	`"limit":{"type":"integer","minimum":1,"description":"How many lines; default 2000"}` +
	`},"required":["file_path"],"additionalProperties":false}`

// maxCount keeps sums of line numbers far from overflow.
const maxCount = 1_000_000_000

type readInput struct {
	FilePath string `json:"file_path" strict:"filled"`
	Offset   *int   `json:"offset"`
	Limit    *int   `json:"limit"`
}

func (in readInput) lines() (from, count int, err error) {
	from, count = 1, DefaultLines
	if in.Offset != nil {
		from = *in.Offset
	}
	if in.Limit != nil {
		count = *in.Limit
	}
	return from, count, cmp.Or(strict.Within("offset", from, 1, maxCount), strict.Within("limit", count, 1, maxCount))
}

// ReadResult is the structured result of Read.
type ReadResult struct {
	FilePath   string `json:"filePath"`
	StartLine  int    `json:"startLine"`
	NumLines   int    `json:"numLines"`
	TotalLines int    `json:"totalLines"`
}

type readTool struct {
	set  *set
	spec agent.ToolSpec
}

func (t *readTool) Spec() agent.ToolSpec { return t.spec }
func (t *readTool) Parallel() bool       { return true }
func (t *readTool) ReadOnly() bool       { return true }

// Aliases are the names of the same tool in other dialects.
func (t *readTool) Aliases() []string { return []string{"FileRead", "view"} }

func (t *readTool) Call(_ context.Context, c agent.Call) (agent.Output, error) {
	in, err := strict.Decode[readInput](c.Input)
	if err != nil {
		return refuse("Read", "", err), nil
	}
	from, count, err := in.lines()
	if err != nil {
		return refuse("Read", "", err), nil
	}
	place, err := t.set.find(in.FilePath)
	if err != nil {
		return refuse("Read", in.FilePath, err), nil
	}
	data, _, err := load(place)
	if err == nil && bytes.IndexByte(data[:min(len(data), 8192)], 0) >= 0 {
		err = fmt.Errorf("it is a binary file of %d bytes", len(data))
	}
	if err != nil {
		return refuse("Read", in.FilePath, err), nil
	}
	text, res, err := number(data, from, count)
	if err != nil {
		return refuse("Read", in.FilePath, err), nil
	}
	t.set.remember(place.Path(), data)
	res.FilePath = place.Path()
	return agent.Output{Text: text, Structured: res}, nil
}

// number shows count lines of a file, the first of which is from.
func number(data []byte, from, count int) (string, ReadResult, error) {
	total := bytes.Count(data, []byte("\n"))
	if len(data) > 0 && data[len(data)-1] != '\n' {
		total++
	}
	res := ReadResult{StartLine: from, TotalLines: total}
	if total == 0 {
		return "(the file is empty)", res, nil
	}
	if from > total {
		return "", res, fmt.Errorf("offset %d is past the end: the file has %d lines", from, total)
	}
	rest := strings.TrimPrefix(string(data), "\ufeff")
	var b strings.Builder
	for n := 1; n <= total && n < from+count; n++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if n < from {
			continue
		}
		line = fmt.Sprintf("%6d\t%s\n", n, shorten(strings.TrimSuffix(line, "\r")))
		if b.Len()+len(line) > maxShown {
			break
		}
		b.WriteString(line)
		res.NumLines++
	}
	if next := from + res.NumLines; next <= total {
		fmt.Fprintf(&b, "(lines %d to %d of %d; go on with offset %d)\n", from, next-1, total, next)
	}
	return b.String(), res, nil
}

// shorten cuts a line between code points and shows what is hidden in it.
func shorten(line string) string {
	if len(line) <= maxLine {
		return excerpt.Visible(line)
	}
	n := utf8.RuneCountInString(line)
	if n <= maxLine {
		return excerpt.Visible(line)
	}
	cut := 0
	for range maxLine {
		_, size := utf8.DecodeRuneInString(line[cut:])
		cut += size
	}
	return fmt.Sprintf("%s… (%d more characters)", excerpt.Visible(line[:cut]), n-maxLine)
}
