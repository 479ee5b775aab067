// Package skilltool is the tool Skill, by which a model loads a skill.
//
// It promises that what the model is told of the tool is the same whatever
// skills there are, and that a skill is recorded as used when its text was
// handed out and not otherwise. It finds no skills and runs none.
package skilltool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/skill"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
)

// Bounds of an answer.
const (
	maxText  = 100_000 // code points of a skill
	maxNames = 2000    // code points of a list of names
	maxArgs  = 10_000  // bytes
)

//go:embed skill.md
var prompt string

const schema = `{"type":"object","properties":{` +
	`"skill":{"type":"string","description":"Name of the skill"},` +
	`"args":{"type":"string","description":"Text for the skill"}` +
	`},"required":["skill"],"additionalProperties":false}`

// Config is what the tool needs. All of it is required.
type Config struct {
	Skills func() skill.Catalog // as they are now
	Used   *skill.Ledger        // of the agent that has the tool
}

// New makes the tool Skill.
func New(c Config) agent.Tool {
	return &tool{cfg: c, spec: agent.ToolSpec{Name: "Skill", Description: prompt, InputSchema: json.RawMessage(schema)}}
}

type input struct {
	Skill string `json:"skill" strict:"filled"`
	Args  string `json:"args"`
}

// Result is the structured result.
type Result struct {
	Skill        string   `json:"skill"`
	Path         string   `json:"path"`
	AllowedTools []string `json:"allowedTools,omitempty"` // that hold from now on
}

type tool struct {
	cfg  Config
	spec agent.ToolSpec
}

func (t *tool) Spec() agent.ToolSpec { return t.spec }

// ReadOnly lets a skill be loaded without a question: it is text. What it makes
// the model do is asked about then.
func (t *tool) ReadOnly() bool { return true }

// Aliases are the names of the same tool in other dialects.
func (t *tool) Aliases() []string { return []string{"skill"} }

func (t *tool) Call(_ context.Context, c agent.Call) (agent.Output, error) {
	in, err := strict.Decode[input](c.Input)
	if err == nil && len(in.Args) > maxArgs {
		err = fmt.Errorf(`field "args" has %d bytes, more than %d`, len(in.Args), maxArgs)
	}
	if err != nil {
		return agent.Refuse("Skill: " + err.Error()), nil
	}
	skills := t.cfg.Skills()
	s, ok := skills.Find(in.Skill)
	if !ok {
		return agent.Refuse(unknown(in.Skill, skills.Names())), nil
	}
	t.cfg.Used.Record(s, time.Now())
	res := Result{Skill: s.Name, Path: s.Path}
	if s.Trusted {
		res.AllowedTools = s.AllowedTools
	}
	return agent.Output{Text: render(s, in.Args), Structured: res}, nil
}

func unknown(name string, names []string) string {
	text := fmt.Sprintf("Skill: there is no skill %q", excerpt.Line(name, 80))
	if len(names) == 0 {
		return text + "; there are none here"
	}
	return text + "; there are " + excerpt.Line(strings.Join(names, ", "), maxNames)
}

// render puts the arguments where the skill wants them, or behind it.
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
	return fmt.Sprintf("Skill %s. Its folder, in which relative paths begin: %s\n\n%s\n", s.Name, excerpt.Line(s.Dir, 1000), body)
}
