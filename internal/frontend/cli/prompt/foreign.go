package prompt

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// foreignFlags are those that programs which use the Agent SDK give, and that are no
// flags of ours under another name.
type foreignFlags struct {
	thinking       string
	skip           bool // ask for nothing
	noPersistence  bool
	managed        string   // settings that the program enforces
	prompts        string   // who answers questions: host or none
	resumeAt       string   // a message of the session that is resumed
	systemFile     string   // the text of --system-prompt
	appendFile     string   // the text of --append-system-prompt
	withoutEffects []string // names of those that were given and do nothing
}

// add declares them; help does not list them.
func (x *foreignFlags) add(all *pflag.FlagSet, p *Prompt) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.StringArrayVar(&p.Plugins, "plugin-dir", nil, "")
	f.StringArrayVar(&p.QuietPlugins, "plugin-dir-no-mcp", nil, "")
	f.StringVar(&x.thinking, "thinking", "", "adaptive, enabled or disabled")
	f.BoolVar(&x.skip, "dangerously-skip-permissions", false, "permission mode bypassPermissions")
	f.StringVar(&x.managed, "managed-settings", "", "")
	f.StringVar(&x.prompts, "permission-prompts", "", "host or none")
	f.StringVar(&x.resumeAt, "resume-session-at", "", "")
	f.StringVar(&x.systemFile, "system-prompt-file", "", "")
	f.StringVar(&x.appendFile, "append-system-prompt-file", "", "")
	f.BoolVar(&x.noPersistence, "no-session-persistence", false, "")
	for name, lacks := range map[string]string{ // what each would do
		"allow-dangerously-skip-permissions": "", // the mode can be asked for later: it always can
		"await-initialize":                   "", // it always is awaited
		"debug":                              "Drover keeps no debug log",
		"bare":                               "settings of the folder and the user count",
		"replay-user-messages":               "prompts are not repeated on the stream",
		"debug-file":                         "Drover keeps no debug log",
		"betas":                              "no beta headers are sent",
	} {
		f.Var(&idleFlag{name: name, lacks: lacks, of: x}, name, "")
		if name != "debug-file" && name != "betas" { // which take a value
			f.Lookup(name).NoOptDefVal = "true"
		}
	}
	f.VisitAll(func(one *pflag.Flag) {
		one.Hidden = true
		all.AddFlag(one)
	})
}

// idleFlag is a flag that is accepted and does nothing.
type idleFlag struct {
	name, lacks, value string
	of                 *foreignFlags
}

func (v *idleFlag) String() string { return v.value }

func (v *idleFlag) Type() string { return "string" }

func (v *idleFlag) Set(text string) error {
	v.value = text
	if v.lacks != "" && text != "false" {
		v.of.withoutEffects = append(v.of.withoutEffects, "--"+v.name+" has no effect: "+v.lacks)
	}
	return nil
}

// checkInput completes the flags about what comes on stdin and how the model thinks.
func (p *Prompt) checkInput(stderr io.Writer) error {
	switch p.Input {
	case "", "text":
		if p.Decider != "" {
			return console.Usage("--permission-prompt-tool needs --input-format stream-json",
				"add it, or answer with `drover approvals`")
		}
	case streamJSON:
		if p.Format != streamJSON {
			return console.Usage("--input-format stream-json needs --output-format stream-json", "add it")
		}
		if p.Detach {
			return console.Usage("--input-format stream-json and --detach are mutually exclusive", "give one of them")
		}
	default:
		return console.Usage(fmt.Sprintf("--input-format %q: unknown format", p.Input), "use text or stream-json")
	}
	if p.Decider != "" && p.Decider != "stdio" {
		return console.Usage(fmt.Sprintf("--permission-prompt-tool %q: only stdio is supported", p.Decider), "use stdio")
	}
	if p.Effort != "" && !slices.Contains(control.Efforts(), p.Effort) {
		return console.Usage(fmt.Sprintf("--effort %q: unknown level", p.Effort),
			"use "+strings.Join(control.Efforts(), ", "))
	}
	if !slices.Contains([]string{"", "host", "none"}, p.foreign.prompts) {
		return console.Usage(fmt.Sprintf("--permission-prompts %q: unknown", p.foreign.prompts), "use host or none")
	}
	if err := p.checkProtection(); err != nil {
		return err
	}
	if err := fromFile("system-prompt", p.foreign.systemFile, &p.System); err != nil {
		return err
	}
	if err := fromFile("append-system-prompt", p.foreign.appendFile, &p.AppendSystem); err != nil {
		return err
	}
	if p.foreign.noPersistence {
		p.foreign.withoutEffects = append(p.foreign.withoutEffects,
			"--no-session-persistence has no effect: the session is kept, see `drover sessions rm`")
	}
	switch p.foreign.thinking {
	case "", "adaptive", "enabled":
	case "disabled":
		p.ThinkingTokens = -1
	default:
		return console.Usage(fmt.Sprintf("--thinking %q: unknown", p.foreign.thinking), "use adaptive, enabled or disabled")
	}
	if p.Mode == "manual" {
		p.Mode = "default"
	}
	if p.foreign.skip {
		p.Mode = "bypassPermissions"
	}
	slices.Sort(p.foreign.withoutEffects)
	for _, text := range p.foreign.withoutEffects {
		fmt.Fprintln(stderr, "drover: note: "+text)
	}
	return nil
}

// AsksNobody reports whether what only somebody outside can decide is denied at once, also
// where a program drives the session.
func (p *Prompt) AsksNobody() bool { return p.foreign.prompts == "none" }

// checkProtection refuses what protects somebody and is not there: a note on stderr would
// leave them without it.
func (p *Prompt) checkProtection() error {
	switch {
	case p.foreign.managed != "":
		return console.Usage("--managed-settings is not supported: the settings would not be enforced",
			"give rules with --settings, which the files of the folder cannot weaken")
	case p.foreign.resumeAt != "":
		return console.Usage("--resume-session-at is not supported: the whole session would be resumed",
			"leave it out, or see `drover fork --list`")
	}
	return p.translateSandbox()
}

// fromFile reads the text of a flag from the file that another flag names; empty: none does.
func fromFile(flag, path string, text *string) error {
	switch {
	case path == "":
		return nil
	case *text != "":
		return console.Usage(fmt.Sprintf("--%s and --%[1]s-file are mutually exclusive", flag), "give one of them")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return console.Usage(fmt.Sprintf("--%s-file: %v", flag, err), "name a readable file")
	}
	if *text = string(data); strings.TrimSpace(*text) == "" || !utf8.ValidString(*text) {
		return console.Usage(fmt.Sprintf("--%s-file: %s is empty or not UTF-8", flag, path), "name a file with text")
	}
	return nil
}

// foreignSandbox is the sandbox of the settings of another program.
type foreignSandbox struct {
	Enabled *bool `json:"enabled"`
	Must    *bool `json:"failIfUnavailable"`
	Auto    *bool `json:"autoAllowBashIfSandboxed"`
	Outside *bool `json:"allowUnsandboxedCommands"`
	Network struct {
		Allowed []string `json:"allowedDomains"`
	} `json:"network"`
	Files struct {
		Write  []string `json:"allowWrite"`
		Hidden []string `json:"denyRead"`
	} `json:"filesystem"`
}

// translateSandbox puts the sandbox of --settings into our words, if it is in those of another
// program. A part that would
// protect and has no counterpart is refused; a part that would allow more is named.
func (p *Prompt) translateSandbox() error {
	var all, box map[string]json.RawMessage
	if json.Unmarshal([]byte(p.Settings), &all) != nil || json.Unmarshal(all["sandbox"], &box) != nil {
		return nil // a file, or settings that are refused later
	}
	var f foreignSandbox
	if err := json.Unmarshal(all["sandbox"], &f); err != nil || f.Enabled == nil {
		return nil //nolint:nilerr // in our words, or refused later
	}
	own := map[string]any{"mode": "off"}
	if *f.Enabled {
		for _, name := range []string{"network", "filesystem"} {
			var parts map[string]json.RawMessage
			_ = json.Unmarshal(box[name], &parts) // it has been read
			for _, part := range slices.Sorted(maps.Keys(parts)) {
				switch part {
				case "allowedDomains", "allowWrite", "denyRead":
				case "allowLocalBinding", "allowUnixSockets", "allowAllUnixSockets", "allowMachLookup":
					p.foreign.withoutEffects = append(p.foreign.withoutEffects,
						fmt.Sprintf("sandbox.%s.%s has no effect: see docs/sandbox.md for what commands reach", name, part))
				default:
					return console.Usage(fmt.Sprintf("--settings: sandbox.%s.%s is not supported", name, part),
						"leave it out, see docs/sandbox.md")
				}
			}
		}
		if f.Outside != nil && !*f.Outside {
			return console.Usage("--settings: sandbox.allowUnsandboxedCommands false is not supported: a command outside is a question",
				"leave it out, and deny the question")
		}
		own["mode"] = "required"
		if f.Must != nil && !*f.Must {
			own["mode"] = "best"
		}
		own["autoAllow"] = f.Auto == nil || *f.Auto
		own["domains"], own["write"], own["hidden"] = f.Network.Allowed, f.Files.Write, f.Files.Hidden
		p.SandboxGiven = true
	}
	raw, err := json.Marshal(own)
	if err != nil {
		return err
	}
	all["sandbox"] = raw
	if raw, err = json.Marshal(all); err != nil {
		return err
	}
	p.Settings = string(raw)
	return nil
}

// programServers takes the MCP servers out of --mcp-config that are in the program on stdin:
// those of type sdk. Unreadable files are left to the reader of the rest.
func (p *Prompt) programServers() {
	for i, text := range p.MCP {
		var file struct {
			Servers map[string]json.RawMessage `json:"mcpServers"`
		}
		if json.Unmarshal([]byte(text), &file) != nil {
			continue
		}
		found := false
		for name, raw := range file.Servers {
			var one struct {
				Type string `json:"type"`
			}
			if json.Unmarshal(raw, &one) == nil && one.Type == "sdk" {
				p.ProgramServers = append(p.ProgramServers, name)
				delete(file.Servers, name)
				found = true
			}
		}
		if rest, err := json.Marshal(file); found && err == nil {
			p.MCP[i] = string(rest)
		}
	}
	slices.Sort(p.ProgramServers)
}

// KnownFlags leaves out of args the leading flags that a program of the Agent SDK gives and
// that Drover does not know, with their values, and says so.
func KnownFlags(args []string, stderr io.Writer) []string {
	if !drivenBySDK(args) {
		return args
	}
	var p Prompt
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.Add(flags)
	var out []string
	for i := 0; i < len(args); i++ {
		word := args[i]
		name, _, hasValue := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if !strings.HasPrefix(word, "--") || word == "--" || flags.Lookup(kebab(name)) != nil {
			out = append(out, word)
			if f := flags.Lookup(kebab(name)); f != nil && !hasValue && f.NoOptDefVal == "" && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
			continue
		}
		fmt.Fprintf(stderr, "drover: note: the flag --%s is not known and has no effect\n", name)
		if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
		}
	}
	return out
}

// drivenBySDK reports whether the words are those with which the Agent SDK starts its
// executable.
func drivenBySDK(args []string) bool {
	for i, word := range args {
		if word == "--input-format=stream-json" || word == "--input-format" && i+1 < len(args) && args[i+1] == streamJSON {
			return true
		}
	}
	return false
}
