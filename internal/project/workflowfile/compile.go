package workflowfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"path/filepath"
	"slices"
	"strings"
)

// Compile reads a file with all workflows that it names, by read, and gives a plan
// without faults, or the faults, in the order of the files. file is absolute; what
// a step names is relative to its file.
func Compile(file string, read func(path string) ([]byte, error)) (*Plan, []Fault) {
	c := &compiler{read: read}
	p := c.file(filepath.Clean(file), nil)
	if p != nil && len(c.faults) == 0 {
		c.faults = p.Check()
	}
	if len(c.faults) == 0 {
		return p, nil
	}
	slices.SortStableFunc(c.faults, byLine)
	if more := len(c.faults) - maxFaults; more > 0 {
		c.faults = append(c.faults[:maxFaults], Fault{Text: fmt.Sprintf("and %d more faults", more)})
	}
	return nil, c.faults
}

type compiler struct {
	read   func(string) ([]byte, error)
	faults []Fault
	bytes  int
	steps  int
}

// file reads one file. above are those that have named it, outermost first.
func (c *compiler) file(path string, above []string) *Plan {
	data, err := c.read(path)
	if err != nil {
		c.faults = append(c.faults, Fault{File: path, Text: "it cannot be read: " + err.Error()})
		return nil
	}
	p, faults := parse(path, data)
	c.faults = append(c.faults, faults...)
	if p == nil || len(faults) > 0 {
		return nil
	}
	if p.Name == "" {
		p.Name = nameOf(path)
	}
	c.bytes, c.steps = c.bytes+len(data), c.steps+len(p.Steps)
	if c.bytes > MaxAllBytes || c.steps > MaxAllSteps {
		c.faults = append(c.faults, Fault{
			File: path,
			Text: fmt.Sprintf("the workflow and what it names have more than %d steps or %d bytes", MaxAllSteps, MaxAllBytes),
		})
		return nil
	}
	sum := sha256.New()
	sum.Write(data)
	above = append(slices.Clone(above), path)
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Workflow != nil {
			c.nested(s, path, above, sum)
		}
	}
	p.Digest = hex.EncodeToString(sum.Sum(nil))
	return p
}

func (c *compiler) nested(s *Step, path string, above []string, sum hash.Hash) {
	sub := s.Workflow.File
	if !filepath.IsAbs(sub) {
		sub = filepath.Join(filepath.Dir(path), sub)
	}
	if sub = filepath.Clean(sub); filepath.Ext(sub) == "" {
		sub += ".yaml"
	}
	fault := func(format string, args ...any) {
		c.faults = append(c.faults,
			Fault{File: path, Line: s.Line, Text: "step " + s.ID + ": " + fmt.Sprintf(format, args...)})
	}
	switch {
	case slices.Contains(above, sub):
		fault("a workflow cannot be a part of itself: %s", strings.Join(append(slices.Clone(above), sub), " -> "))
		return
	case len(above) >= MaxDepth:
		fault("workflows are more than %d deep in each other", MaxDepth)
		return
	}
	if s.Workflow.Plan = c.file(sub, above); s.Workflow.Plan != nil {
		sum.Write([]byte(s.Workflow.Plan.Digest))
	}
}

// nameOf returns the name of a workflow that has none itself: from its file.
func nameOf(path string) string {
	base := filepath.Base(path)
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameChars, r) {
			return r
		}
		return '-'
	}, strings.TrimSuffix(base, filepath.Ext(base)))
	return name[:min(len(name), 64)]
}
