package files

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/picture"
)

type readInput struct {
	FilePath string `json:"file_path" jsonschema:"Absolute, or relative to the project folder" input:"filled"`
	Offset   *int   `json:"offset,omitempty" input:"minimum=1"`
	Limit    *int   `json:"limit,omitempty" input:"minimum=1"`
}

func (in readInput) lines() (from, count int) {
	from, count = 1, DefaultLines
	if in.Offset != nil {
		from = *in.Offset
	}
	if in.Limit != nil {
		count = *in.Limit
	}
	return from, count
}

// ReadResult is the structured result of Read.
type ReadResult struct {
	FilePath   string `json:"filePath"`
	StartLine  int    `json:"startLine"`
	NumLines   int    `json:"numLines"`
	TotalLines int    `json:"totalLines"`
}

func (s *set) readFile(_ context.Context, _ agent.Call, in readInput) (agent.Output, error) {
	place, err := s.find(in.FilePath)
	if err != nil {
		return refuse(in.FilePath, err)
	}
	data, _, err := load(place)
	if kind, ok := picture.Type(data); ok && err == nil {
		return shownImage(place.Path(), kind, data)
	}
	if err == nil && bytes.IndexByte(data[:min(len(data), 8192)], 0) >= 0 {
		err = fmt.Errorf("it is a binary file of %d bytes", len(data))
	}
	if err != nil {
		return refuse(in.FilePath, err)
	}
	from, count := in.lines()
	text, res, err := number(data, from, count)
	if err != nil {
		return refuse(in.FilePath, err)
	}
	s.remember(place.Path(), data)
	res.FilePath = place.Path()
	return agent.Output{Text: text, Structured: res}, nil
}

// shownImage lets the model see an image.
func shownImage(path, kind string, data []byte) (agent.Output, error) {
	if _, err := picture.Check(data); err != nil {
		return refuse(path, err)
	}
	return agent.Output{
		Text:       fmt.Sprintf("%s is an image (%s, %d bytes), which follows.", path, kind, len(data)),
		Images:     []agent.Block{{Type: "image", Source: picture.Source(data, kind)}},
		Structured: ReadResult{FilePath: path},
	}, nil
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
	for n := 1; n <= total && n-from < count; n++ {
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

// shorten cuts a line between code points and makes hidden characters visible.
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
