package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/command"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/mcptool"
)

// commands returns the current commands.
func (s *Session) commands() command.Catalog {
	if find := s.cfg.Agents.Commands; find != nil {
		return find()
	}
	return command.Find(nil, skill.Catalog{})
}

// Commands returns the commands with which a prompt to the main agent may begin.
func (s *Session) Commands(ctx context.Context) (control.Commands, error) {
	list := s.commands()
	out := control.Commands{Commands: []control.Command{}, Problems: []string{}}
	for _, one := range list.All() {
		out.Commands = append(out.Commands, control.Command(one.Line()))
	}
	for _, n := range list.Warnings() {
		out.Problems = append(out.Problems, n.String())
	}
	s.mu.Lock()
	main := s.main
	s.mu.Unlock()
	if main == nil {
		return out, nil
	}
	prompts, err := main.environment().Servers.Prompts(ctx)
	if err != nil {
		out.Problems = append(out.Problems, err.Error())
	}
	for _, p := range prompts {
		out.Commands = append(out.Commands, control.Command{Name: p.Command, Kind: "prompt", Description: p.Description,
			ArgumentHint: p.Hint(), Level: "server", Source: "MCP server " + p.Server})
	}
	return out, nil
}

// Command implements [conversation.Hooks]: it expands a prompt that begins with the name of a
// command.
func (h mainHooks) Command(ctx context.Context, prompt string) (answer, instead string, ok bool, err error) {
	h.environment().Granted.Set(nil, nil)
	name, args, ok := command.Split(prompt)
	if !ok {
		return "", "", false, nil
	}
	c, err := h.s.commands().Find(name)
	if err == nil && c.Sort == command.Program {
		answer, instead, err = h.program(c.Name, args)
		return answer, instead, err == nil, err
	}
	text, err := h.becomes(ctx, name, args)
	if text == nil || err != nil {
		return "", "", false, err
	}
	return "", *text, true, nil
}

// becomes returns the prompt that a command becomes; nil: it is no command. The shell lines of a command that was
// recorded run again as tasks, which are played; what they print is in the recorded prompt.
func (h mainHooks) becomes(ctx context.Context, name, args string) (*string, error) {
	k, looked := h.environment(), false
	said, err := h.s.cfg.Agents.Seam.Texts(ctx, k.Me.ID, environment.CommandTexts, func() ([]string, error) {
		looked = true
		var ran []string
		text, err := h.look(ctx, name, args, noting(k.Config.Tools, &ran))
		if text == nil || err != nil {
			return nil, err
		}
		return append([]string{*text}, ran...), nil
	})
	if len(said) == 0 || err != nil {
		return nil, err
	}
	for _, line := range said[1:] {
		var c agent.Call
		if looked || json.Unmarshal([]byte(line), &c) != nil {
			break
		}
		for _, t := range k.Config.Tools {
			if t.Spec().Name == c.Name {
				_, _ = t.Call(ctx, c)
			}
		}
	}
	return &said[0], nil
}

// look looks for a command and expands it. Shell lines and files are read by the tools.
func (h mainHooks) look(ctx context.Context, name, args string, tools []agent.Tool) (*string, error) {
	if strings.HasPrefix(strings.ToLower(name), mcptool.Prefix) {
		instead, found, err := h.environment().Servers.Prompt(ctx, name, command.Words(args))
		switch {
		case err != nil:
			return nil, control.Refuse(control.Invalid, err.Error(), "")
		case found:
			return &instead, nil
		}
	}
	c, err := h.s.commands().Find(name)
	var unknown *command.UnknownError
	switch {
	case errors.As(err, &unknown) && isFile("/"+name):
		return nil, nil
	case err != nil:
		return nil, control.Refuse(control.Invalid, err.Error(), "")
	}
	text, err := h.expand(ctx, c, args, tools)
	return &text, err
}

// noting returns the tools with a shell that notes its calls.
func noting(tools []agent.Tool, calls *[]string) []agent.Tool {
	out := slices.Clone(tools)
	for i, t := range out {
		if t.Spec().Name == "Bash" {
			out[i] = noted{t, calls}
		}
	}
	return out
}

type noted struct {
	agent.Tool
	calls *[]string
}

func (n noted) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	if raw, err := json.Marshal(c); err == nil {
		*n.calls = append(*n.calls, string(raw))
	}
	return n.Tool.Call(ctx, c)
}

// isFile reports whether a path of one element names a file or folder.
func isFile(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// program executes a command of the program, or returns the prompt for it.
func (h mainHooks) program(name, args string) (answer, instead string, err error) {
	switch name {
	case command.SubconsciousName:
		answer, instead = h.learnings.Command(args)
		return answer, instead, nil
	case command.AutopilotName:
		answer, err = h.autopilot(args)
		return answer, "", err
	}
	return "", "", fmt.Errorf("/%s is not known to this session", name)
}

// autopilot changes the mode of the session.
func (h mainHooks) autopilot(word string) (answer string, err error) {
	mode := map[string]string{"on": conversation.AutopilotMode, "off": conversation.InteractiveMode}[word]
	switch {
	case word == "" && h.Mode() == conversation.AutopilotMode:
		mode = conversation.InteractiveMode
	case word == "":
		mode = conversation.AutopilotMode
	case mode == "":
		return "", control.Refuse(control.Invalid, fmt.Sprintf("/autopilot %.40q is not known", word), "use on or off")
	}
	if _, err := h.environment().Configure(h.Conversation, control.ConfigureRequest{SessionMode: &mode}); err != nil {
		return "", err
	}
	return "The session mode is " + mode + " now.", nil
}

// expand returns the prompt of a command, and applies its permission rules.
func (h mainHooks) expand(ctx context.Context, c command.Command, args string, tools []agent.Tool) (string, error) {
	k := h.environment()
	values, report, err := h.values(c, args)
	if err != nil {
		return "", err
	}
	fill := h.filler(values)
	if c.Trusted {
		k.Granted.Set(fill(c.Allow), nil)
	}
	included, err := k.Include(ctx, tools, c, values)
	if err != nil {
		k.Granted.Set(nil, nil)
		return "", err
	}
	text, err := c.Template.Expand(values, included)
	if err != nil {
		k.Granted.Set(nil, nil)
		return "", fmt.Errorf("/%s was not sent: %w", c.Name, err)
	}
	if c.Trusted {
		k.Granted.Set(fill(c.Allow), fill(c.Only))
	}
	if report != "" {
		h.s.tree.Report.Say(k.Me.ID, fmt.Sprintf("the report of /%s is written to %s", c.Name, report))
	}
	return h.handedOn(c, text), nil
}

// values are the values for the placeholders of the command, and the report that it is to
// write.
func (h mainHooks) values(c command.Command, args string) (v command.Values, report string, err error) {
	k := h.environment()
	v = command.Values{Args: args, Variables: map[string]string{"CLAUDE_PROJECT_DIR": k.Me.Cwd,
		"DROVER_PROJECT_DIR": k.Me.Cwd, "workspaceFolder": k.Me.Cwd}}
	if c.Dir != "" {
		v.Variables["CLAUDE_SKILL_DIR"] = c.Dir
	}
	if c.Root != "" {
		v.Variables["CLAUDE_PLUGIN_ROOT"] = c.Root
	}
	if c.Level == definitions.BuiltIn && c.Name == command.ResearchName {
		if strings.TrimSpace(args) == "" {
			return v, "", control.Refuse(control.Invalid, "/research needs a question",
				"write it behind the command: /research QUESTION")
		}
		if report, err = h.s.cfg.Place.NewReport(args); err != nil {
			return v, "", err
		}
		v.Variables["DROVER_REPORT"] = report
	}
	return v, report, nil
}

// filler inserts paths into rules.
func (h mainHooks) filler(v command.Values) func(rules []string) []string {
	quote := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`).Replace
	r := strings.NewReplacer("${DROVER_REPORT}", quote(v.Variables["DROVER_REPORT"]),
		"${DROVER_TASKS}", quote(filepath.Clean(h.s.cfg.Place.Tasks())))
	return func(rules []string) []string {
		if rules == nil {
			return nil
		}
		out := make([]string, len(rules))
		for i, rule := range rules {
			out[i] = r.Replace(rule)
		}
		return out
	}
}

// handedOn turns the prompt into one for another agent, if the command names one. It reports
// settings of the command that cannot be applied.
func (h mainHooks) handedOn(c command.Command, text string) string {
	tell := func(format string, args ...any) {
		h.s.tree.Report.Say(h.environment().Me.ID, fmt.Sprintf(format, args...))
	}
	if c.Agent != "" {
		_, err := h.s.Catalog().Find(c.Agent)
		able := slices.Contains(h.tools, "Agent")
		if err == nil && able {
			return toAgent(c, text)
		}
		tell("/%s wants the agent %q: %v; the main agent does its work", c.Name, c.Agent,
			cmp.Or(err, errors.New("the main agent may start none")))
	}
	if c.Model != "" {
		tell("/%s wants the model %q; the conversation goes on with %s", c.Name, c.Model, h.model)
	}
	return text
}

// toAgent returns the prompt by which the main agent delegates the work to another agent.
func toAgent(c command.Command, text string) string {
	model := ""
	if c.Model != "" {
		model = fmt.Sprintf(" and model %q", c.Model)
	}
	return fmt.Sprintf("Call the Agent tool exactly once, with subagent_type %q%s, and with the text of the element "+
		"below as its prompt, unchanged. Then answer with what it reports.\n\n%s", c.Agent, model, excerpt.Element("prompt", text))
}
