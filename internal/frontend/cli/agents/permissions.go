package agents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
)

// bounds of a batch.
const (
	maxBatchLine  = 4 << 20 // bytes; a longer line is answered with deny
	maxBatchGates = 256     // rule sets that are kept
)

// permissionsCommand answers questions about rules.
func (a *app) permissionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "permissions",
	}
	cmd.AddCommand(a.permissionsCheck())
	return cmd
}

// ruleSet is a batch line without the call.
type ruleSet struct {
	Allow    []string `json:"allow"`
	Ask      []string `json:"ask"`
	Deny     []string `json:"deny"`
	ReadOnly bool     `json:"readOnly"`
	Mode     string   `json:"mode"`
	Cwd      string   `json:"cwd"`
}

type ruleLine struct {
	ruleSet
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

// answer is how a decision is printed.
type answer struct {
	Decision policy.Outcome `json:"decision"`
	Reason   string         `json:"reason"`
	Rule     string         `json:"rule"`
	Suggest  string         `json:"suggest,omitempty"` // the rule that would allow the call
}

func (a *app) permissionsCheck() *cobra.Command {
	var set ruleSet
	var batch, asJSON bool
	cmd := &cobra.Command{
		Use:   "check [flags] TOOL INPUT",
		Short: "Show what the permission rules decide for a call, and why",
		Long: "Print the decision of the rules for a tool call: allow, ask or deny, the reason, and the rule\n" +
			"that matched. INPUT is the tool's input as a JSON object; for Bash it may be the\n" +
			"command line, for file tools the path. Nothing runs, and nothing is asked.\n\n" +
			"--allow, --ask, --deny, --mode and --read-only replace the rules of your settings. Without\n" +
			"these flags the settings decide, and what the sandbox bounds.\n\n" +
			"--batch reads JSON lines {allow, ask, deny, readOnly, mode, cwd, tool, input} on stdin and\n" +
			"writes {decision, reason, rule, suggest} for each line, in order. A line that cannot be read is denied.\n\n" +
			"The exit status is 0 for every answer, and 2 for wrong usage.",
		Args: func(_ *cobra.Command, args []string) error {
			if batch && len(args) == 0 || !batch && len(args) == 2 {
				return nil
			}
			return &console.ExitError{
				Code: 2,
				Err:  errors.New("give a tool and its input, or --batch (see `drover permissions check --help`)"),
			}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if batch {
				return a.permissionsBatch(cmd.InOrStdin(), cmd.OutOrStdout())
			}
			for flag, rules := range map[string][]string{"--allow": set.Allow, "--ask": set.Ask, "--deny": set.Deny} {
				if err := console.CheckToolNames(flag, rules); err != nil {
					return err
				}
			}
			given := slices.ContainsFunc([]string{"allow", "ask", "deny", "mode", "read-only"}, cmd.Flags().Changed)
			a, err := a.checkOne(set, given, args[0], args[1])
			if err != nil {
				return err
			}
			return printAnswer(cmd.OutOrStdout(), a, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&set.Allow, "allow", nil, "a rule that allows, such as 'Bash(go test:*)' (repeatable)")
	f.StringArrayVar(&set.Ask, "ask", nil, "a rule that asks (repeatable)")
	f.StringArrayVar(&set.Deny, "deny", nil, "a rule that denies (repeatable)")
	f.StringVar(&set.Mode, "mode", "", "permission mode: default, acceptEdits, plan, dontAsk or bypassPermissions")
	f.BoolVar(&set.ReadOnly, "read-only", false, "approve shell lines that only read")
	f.StringVar(&set.Cwd, "cwd", "", "working directory (default: this one)")
	f.BoolVar(&batch, "batch", false, "answer JSON lines from stdin")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// checkOne decides one call: by the flags, or, without any, as a session in the
// folder would. Rules that are wrong are errors here, since the question is about
// them.
func (a *app) checkOne(set ruleSet, given bool, tool, input string) (answer, error) {
	g, notes, err := a.Gate(a.ruleSet(set), !given)
	if err != nil {
		return answer{}, &console.ExitError{Code: 2, Err: err}
	}
	for _, n := range notes {
		a.Hint(n)
	}
	return decide(g, tool, callInput(tool, input)), nil
}

func (a *app) ruleSet(set ruleSet) policy.Rules {
	dir := a.Path(set.Cwd)
	get := home.Lookup(a.Env)
	return policy.Rules{Mode: policy.Mode(set.Mode), Allow: set.Allow, Ask: set.Ask, Deny: set.Deny,
		Cwd:  filepath.Clean(dir),
		Home: get("HOME"), Path: get("PATH"), ReadOnlyAuto: set.ReadOnly, Filtered: true, Headless: true}
}

// callInput takes an object as it is, and makes one of a plain text.
func callInput(tool, text string) json.RawMessage {
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "{") && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	field := "file_path"
	switch tool {
	case "Bash":
		field = "command"
	case "Glob", "Grep":
		field = "pattern"
	case "LS":
		field = "path"
	case "NotebookEdit":
		field = "notebook_path"
	case "WebFetch", "WebSearch":
		field = "url"
	case "Agent", "Task":
		field = "subagent_type"
	case "TaskOutput", "TaskStop":
		field = "task_id"
	}
	input, err := json.Marshal(map[string]string{field: text})
	if err != nil {
		return json.RawMessage(`{}`) // text can always be encoded
	}
	return input
}

func decide(g *policy.Gate, tool string, input json.RawMessage) answer {
	v := g.Judge(tool, input)
	return answer{v.Decision, v.Reason, v.Rule, v.Suggest}
}

func printAnswer(out io.Writer, a answer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(a)
	}
	_, err := fmt.Fprintf(out, "%s: %s\n", a.Decision, excerpt.Visible(a.Reason))
	return err
}

// permissionsBatch answers line by line. Every line of input has one of output.
func (a *app) permissionsBatch(in io.Reader, out io.Writer) error {
	b := batchGates{a: a, gates: map[string]*policy.Gate{}, bad: map[string]error{}, memory: policy.NewMemory()}
	r := bufio.NewReaderSize(in, 64<<10)
	buffered := bufio.NewWriter(out)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	for {
		line, long, err := readBounded(r, maxBatchLine)
		if errors.Is(err, io.EOF) && len(line) == 0 && !long {
			return buffered.Flush()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("read the batch: %w", err), buffered.Flush())
		}
		a := answer{Decision: policy.Deny, Reason: fmt.Sprintf("the line is longer than %d bytes", maxBatchLine)}
		if !long {
			a = b.answer(line)
		}
		if err := enc.Encode(a); err != nil {
			return fmt.Errorf("write the answers: %w", err)
		}
		if r.Buffered() == 0 { // the caller may wait for an answer before it writes the next line
			if err := buffered.Flush(); err != nil {
				return fmt.Errorf("write the answers: %w", err)
			}
		}
	}
}

// readBounded reads a line without its end. Of a line that is too long nothing
// is kept.
func readBounded(r *bufio.Reader, limit int) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > limit; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimRight(line, "\r\n"), long, err
	}
}

// batchGates keeps gates, because the same rules come again and again.
type batchGates struct {
	a      *app
	gates  map[string]*policy.Gate
	bad    map[string]error
	memory *policy.Memory
}

func (b *batchGates) answer(line []byte) answer {
	var l ruleLine
	if err := json.Unmarshal(line, &l); err != nil {
		return answer{Decision: policy.Deny, Reason: "the line is not a JSON object of the expected form"}
	}
	if l.Tool == "" {
		return answer{Decision: policy.Deny, Reason: "the line names no tool"}
	}
	headless := l.Mode == "headless" // no user can answer, so a question is a denial
	if headless {
		l.Mode = ""
	}
	key, err := json.Marshal(l.ruleSet)
	if err != nil {
		return answer{Decision: policy.Deny, Reason: err.Error()}
	}
	g, ok := b.gates[string(key)]
	if !ok {
		g = b.gate(string(key), l.ruleSet)
	}
	var text string
	if json.Unmarshal(l.Input, &text) == nil {
		l.Input = callInput(l.Tool, text)
	}
	a := decide(g, l.Tool, l.Input)
	if headless && a.Decision == policy.Ask {
		a.Decision, a.Reason = policy.Deny, a.Reason+"; nobody can answer"
	}
	// A gate with a rule that is wrong allows less, never more.
	if err := b.bad[string(key)]; err != nil {
		a.Reason += " (" + strings.ReplaceAll(err.Error(), "\n", "; ") + ")"
	}
	return a
}

func (b *batchGates) gate(key string, set ruleSet) *policy.Gate {
	if len(b.gates) >= maxBatchGates {
		clear(b.gates)
		clear(b.bad)
	}
	r := b.a.ruleSet(set)
	r.Memory = b.memory
	g, errs := policy.New(r)
	b.gates[key] = g
	if len(errs) > 0 {
		b.bad[key] = errors.Join(errs...)
	}
	return g
}
