// Package skilltool is the tool Skill, with which a model loads a skill.
//
// The description of the tool does not depend on the skills that exist. A skill is
// recorded as used only when its text was returned. The package finds no skills and
// runs none.
package skilltool

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// Bounds of an answer.
const (
	maxText  = 100_000 // code points of a skill
	maxNames = 2000    // code points of a list of names
	maxArgs  = 10_000  // bytes
)

//go:embed skill.md
var prompt string

type input struct {
	Skill string `json:"skill" jsonschema:"Name of the skill" input:"filled"`
	Args  string `json:"args,omitempty" jsonschema:"Text for the skill"`
}

// New makes the tool Skill of an agent. skills returns the skills as they are now; used
// remembers those that the agent has loaded.
func New(skills func() skill.Catalog, used *skill.Ledger) agent.Tool {
	return toolkit.New(toolkit.Tool[input]{
		Name: "Skill", Description: prompt, Aliases: []string{"skill"},
		ReadOnly: true, // a skill is text: calls that the model then makes need their own permission
		Call: func(_ context.Context, _ agent.Call, in input) (agent.Output, error) {
			return load(in, skills(), used)
		},
	})
}

// Result is the structured result.
type Result struct {
	Skill string   `json:"skill"`
	Path  string   `json:"path"`
	Allow []string `json:"allowedTools,omitempty"` // that hold from now on
}

func load(in input, skills skill.Catalog, used *skill.Ledger) (agent.Output, error) {
	if len(in.Args) > maxArgs {
		return agent.Output{}, toolkit.Refusef(`field "args" has %d bytes, more than %d`, len(in.Args), maxArgs)
	}
	s, ok := skills.Find(in.Skill)
	if !ok {
		return agent.Output{}, unknown(in.Skill, skills.Names())
	}
	used.Record(s, time.Now())
	res := Result{Skill: s.Name, Path: s.Path}
	if s.Trusted {
		res.Allow = s.Allow
	}
	return agent.Output{Text: render(s, in.Args), Structured: res}, nil
}

func unknown(name string, names []string) error {
	there := "there are none here"
	if len(names) > 0 {
		there = "there are " + excerpt.Line(strings.Join(names, ", "), maxNames)
	}
	return toolkit.Refusef("there is no skill %q; %s", excerpt.Line(name, 80), there)
}

// render puts the arguments where the skill wants them, or after it.
func render(s skill.Skill, args string) string {
	const place = "$ARGUMENTS"
	body := excerpt.Visible(s.Body)
	if r := []rune(body); len(r) > maxText {
		body = fmt.Sprintf("%s\n(%d more characters: read the rest in %s)", string(r[:maxText]), len(r)-maxText, s.Path)
	}
	switch {
	case strings.Contains(body, place):
		body = strings.ReplaceAll(body, place, args)
	case strings.TrimSpace(args) != "":
		body += "\n\nArguments: " + args
	}
	if body == "" {
		body = "(the skill has no text)"
	}
	return fmt.Sprintf("Skill %s. Its folder, in which relative paths begin: %s\n\n%s\n", s.Name,
		excerpt.Line(s.Dir, 1000), body)
}
