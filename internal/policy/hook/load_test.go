package hook

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func load(text string, more ...func(*Source)) (*Set, []Problem) {
	src := Source{Path: "f.json", Data: []byte(text), Trusted: true}
	for _, m := range more {
		m(&src)
	}
	return Load([]Source{src})
}

func TestForms(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		dialect string
		events  string
	}{
		"settings":  {`{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"c","timeout":5}]}]},"model":"x"}`, "claude", "PreToolUse"},
		"bare":      {`{"Stop":[{"hooks":[{"type":"command","command":"c"}]}]}`, "claude", "Stop"},
		"others":    {`{"permissions":{"deny":[]},"env":{},"list":["a"],"Stop":[{"hooks":[{"type":"command","command":"c"}]}]}`, "claude", "Stop"},
		"none":      {`{"permissions":{"deny":[]}}`, "", ""},
		"mark":      {"\xef\xbb\xbf" + `{"Stop":[{"hooks":[{"command":"c"}]}]}`, "claude", "Stop"},
		"camel":     {`{"hooks":{"subagentStart":[{"hooks":[{"type":"command","command":"c"}]}]}}`, "claude", "SubagentStart"},
		"copilot":   {`{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"c","powershell":"p","cwd":"sub","env":{"A":"b"},"timeoutSec":7}],"agentStop":[{"type":"command","command":"d"}]}}`, "copilot", "PreToolUse Stop"},
		"renamed":   {`{"version":1,"hooks":{"userPromptSubmitted":[{"type":"command","bash":"c"}],"errorOccurred":[{"type":"command","bash":"c"}]}}`, "copilot", "UserPromptSubmit StopFailure"},
		"pascal":    {`{"version":1,"hooks":{"PreToolUse":[{"type":"command","bash":"c"}]}}`, "copilot", "PreToolUse"},
		"nested":    {`{"version":1,"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"c"}]}]}}`, "copilot", "PreToolUse"},
		"two-lists": {`{"hooks":{"Stop":[{"hooks":[{"command":"a"}]}],"Stop":[{"hooks":[{"command":"b"}]}]}}`, "claude", "Stop Stop"},
		"off":       {`{"hooks":{}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			set, problems := load(c.text)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			var events []string
			for i, e := range set.Entries() {
				events = append(events, string(set.hooks[i].fact.event))
				if e.Dialect != c.dialect || !e.Runs || e.Command == "" {
					t.Errorf("%+v", e)
				}
			}
			if got := strings.Join(events, " "); got != c.events {
				t.Errorf("events %q", got)
			}
		})
	}
}

func TestFields(t *testing.T) {
	set, _ := load(`{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"c","command":"other","cwd":"sub","env":{"B":"2","A":"1"},"timeoutSec":7}]}}`)
	h := set.hooks[0]
	if h.command != "c" || h.dir != "sub" || !slices.Equal(h.env, []string{"A=1", "B=2"}) || h.timeout != 7*time.Second || !h.camel || !h.copilot {
		t.Errorf("%+v", h)
	}
}

// What is not understood is said, never lost in silence.
func TestProblems(t *testing.T) {
	one := func(entry string) string { return `{"hooks":{"PreToolUse":[{"hooks":[` + entry + `]}]}}` }
	for name, c := range map[string]struct {
		text, says string
		hooks      int
	}{
		"empty":       {``, "not a JSON object", 0},
		"half":        {`{"hooks":{"Stop":[`, "cannot be read", 0},
		"array":       {`[]`, "not a JSON object", 0},
		"more":        {`{"hooks":{}} {}`, "follows the object", 0},
		"huge":        {strings.Repeat(" ", maxFile+1), "larger than 1 MiB", 0},
		"deep":        {`{"hooks":` + strings.Repeat("[", 100_000), "cannot be read", 0},
		"misspelt":    {`{"PreTolUse":[{"hooks":[{"command":"c"}]}]}`, "PreTolUse: it is not an event", 0},
		"case":        {`{"hooks":{"pretooluse":[]}}`, "write PreToolUse", 0},
		"list":        {`{"hooks":{"Stop":{}}}`, "not a list", 0},
		"group":       {`{"hooks":{"Stop":["c"]}}`, "not an object", 0},
		"inner":       {`{"hooks":{"Stop":[{"hooks":{}}]}}`, "hooks is not a list", 0},
		"http":        {one(`{"type":"http","url":"http://x"}`), "type http are not supported", 0},
		"prompt":      {one(`{"type":"prompt","prompt":"x"}`), "type prompt are not supported", 0},
		"agent":       {one(`{"type":"agent","prompt":"x"}`), "type agent are not supported", 0},
		"type":        {one(`{"type":"shell","command":"c"}`), `"shell" is not a type of hook`, 0},
		"command":     {one(`{"type":"command"}`), "no command", 0},
		"powershell":  {`{"version":1,"hooks":{"preToolUse":[{"type":"command","powershell":"p"}]}}`, "no command", 0},
		"nul":         {one(`{"type":"command","command":"a\u0000b"}`), "NUL", 0},
		"text":        {one(`{"type":"command","command":5}`), "command is not a text", 0},
		"unknown":     {one(`{"type":"command","command":"c","if":"Bash(git *)"}`), `"if" is not known`, 1},
		"twice":       {one(`{"type":"command","command":"c","command":"d"}`), "given twice", 1},
		"version":     {`{"version":2,"hooks":{"preToolUse":[{"type":"command","bash":"c"}]}}`, "version is 2", 1},
		"disabled":    {`{"disableAllHooks":true,"hooks":{"Stop":[{"hooks":[{"command":"c"}]}]}}`, "disableAllHooks", 0},
		"env":         {one(`{"command":"c","env":{"DROVER_HOOK_DEPTH":"0"}}`), "DROVER_HOOK_DEPTH", 1},
		"env-form":    {one(`{"command":"c","env":["A"]}`), "env is not an object", 1},
		"matcher":     {`{"hooks":{"Notification":[{"matcher":"(","hooks":[{"command":"c"}]}]}}`, "it never runs", 1},
		"guard":       {`{"hooks":{"PreToolUse":[{"matcher":"(","hooks":[{"command":"c"}]}]}}`, "it runs for everything", 1},
		"pointless":   {`{"hooks":{"Stop":[{"matcher":"x","hooks":[{"command":"c"}]}]}}`, "nothing to match", 1},
		"rule":        {`{"hooks":{"PreToolUse":[{"matcher":"Bash(git *)","hooks":[{"command":"c"}]}]}}`, "looks like a permission rule", 1},
		"zero":        {one(`{"command":"c","timeout":0}`), "timeout 0", 1},
		"negative":    {one(`{"command":"c","timeout":-1}`), "timeout -1", 1},
		"long":        {one(`{"command":"c","timeout":1e9}`), "above 600", 1},
		"timeoutText": {one(`{"command":"c","timeout":"5"}`), "not a number", 1},
	} {
		t.Run(name, func(t *testing.T) {
			set, problems := load(c.text)
			if len(problems) == 0 || !strings.Contains(problems[0].String(), c.says) || !strings.HasPrefix(problems[0].String(), "f.json: ") || problems[0].Fix == "" {
				t.Errorf("problems %v", problems)
			}
			if len(set.hooks) != c.hooks {
				t.Errorf("%d hooks", len(set.hooks))
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	for text, want := range map[string]time.Duration{`5`: 5 * time.Second, `0.25`: 250 * time.Millisecond, `600`: 10 * time.Minute, `601`: 10 * time.Minute,
		`0`: time.Minute, `-3`: time.Minute, `null`: time.Minute, `1e-12`: time.Millisecond} {
		set, _ := load(`{"Stop":[{"hooks":[{"command":"c","timeout":` + text + `}]}]}`)
		if got := set.hooks[0].timeout; got != want {
			t.Errorf("timeout %s is %v", text, got)
		}
	}
	set, _ := load(`{"Stop":[{"hooks":[{"command":"c"}]}]}`)
	if set.hooks[0].timeout != time.Minute {
		t.Errorf("default %v", set.hooks[0].timeout)
	}
}

// Every name of the event table is known, in both spellings, and those that are
// never sent are refused at once.
func TestEvents(t *testing.T) {
	sent := map[Event]bool{PreToolUse: true, PostToolUse: true, PostToolUseFailure: true, PostToolBatch: true, PermissionRequest: true, PermissionDenied: true,
		UserPromptSubmit: true, SessionStart: true, SessionEnd: true, Stop: true, StopFailure: true, SubagentStart: true, SubagentStop: true,
		TeammateIdle: true, TaskCreated: true, TaskCompleted: true, Notification: true, PreCompact: true, PostCompact: true}
	names := strings.Fields(`PreToolUse PostToolUse PostToolUseFailure PostToolBatch PermissionRequest PermissionDenied UserPromptSubmit SessionStart SessionEnd
		Stop SubagentStart SubagentStop TaskCreated TaskCompleted Notification PreCompact PostCompact UserPromptExpansion StopFailure TeammateIdle PreModelSwitch
		PostModelSwitch Setup Elicitation ElicitationResult ConfigChange WorktreeCreate WorktreeRemove InstructionsLoaded CwdChanged FileChanged DirectoryAdded MessageDisplay`)
	if len(names) != 33 || len(facts()) != 33 {
		t.Fatalf("%d and %d events", len(names), len(facts()))
	}
	for _, name := range names {
		for _, spelled := range []string{name, lowerFirst(name)} {
			set, problems := load(`{"hooks":{"` + spelled + `":[{"hooks":[{"type":"command","command":"c"}]}]}}`)
			switch {
			case sent[Event(name)] && (len(problems) > 0 || !set.Has(Event(name))):
				t.Errorf("%s: %v", spelled, problems)
			case !sent[Event(name)] && (len(problems) != 1 || !strings.Contains(problems[0].What, "known, but Drover does not send it") || len(set.hooks) > 0):
				t.Errorf("%s: %v", spelled, problems)
			}
		}
	}
	if _, problems := new(Set).With(Callback{Event: "CwdChanged"}); len(problems) != 1 {
		t.Errorf("a callback that would never be called was accepted")
	}
}

func TestMatcher(t *testing.T) {
	for _, c := range []struct {
		matcher, name string
		want          bool
	}{
		{"", "Bash", true}, {"*", "Bash", true}, {".*", "Bash", true}, {" , ", "Bash", true},
		{"Bash", "Bash", true}, {"Bash", "BashOutput", false}, {"Bash", "xBash", false}, {"bash", "Bash", false},
		{"Edit|Write", "Write", true}, {"Edit|Write", "WriteX", false}, {"Edit, Write", "Write", true}, {"Edit,Write", "Read", false},
		{"code-reviewer", "code-reviewer", true}, {"reviewer", "code-reviewer", false}, {"code", "code-reviewer", false}, {"code-reviewer", "my-code-reviewer", false},
		{"mcp__.*__write.*", "mcp__fs__write_file", true}, {"mcp__fs", "mcp__fs__x", false},
		{"Notebook.*", "NotebookEdit", true}, {"a{1,2}", "aa", true}, {"a{1,2}", "aaa", false}, {"[a,b]", ",", true}, {`x\,y`, "x,y", true},
		{"Bash", "Bash\n", false}, {"(?i)bash", "BASH", true}, {"^Bash$", "Bash", true}, {"Read,*", "Bash", true},
	} {
		m, err := newMatcher(c.matcher)
		if err != nil || m.matches([]string{c.name}) != c.want {
			t.Errorf("%q against %q: %v, %v", c.matcher, c.name, !c.want, err)
		}
	}
	for _, bad := range []string{"(", "a)|(b", "[", "a**", "(?=x)"} {
		if m, err := newMatcher(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, m)
		}
	}
}

// A matcher is compared with what the tool is called anywhere, and with both
// names of an agent.
func TestSubjects(t *testing.T) {
	for _, c := range []struct {
		form, event, matcher string
		fields               map[string]any
		want                 bool
	}{
		{"claude", "PreToolUse", "Bash", map[string]any{"tool_name": "Bash"}, true},
		{"claude", "PreToolUse", "bash", map[string]any{"tool_name": "Bash"}, false},
		{"copilot", "preToolUse", "bash", map[string]any{"tool_name": "Bash"}, true},
		{"claude", "PreToolUse", "Task", map[string]any{"tool_name": "Agent"}, true},
		{"claude", "PreToolUse", "Agent", map[string]any{"tool_name": "Agent"}, true},
		{"claude", "PreToolUse", "FileRead", map[string]any{"tool_name": "Read"}, true},
		{"claude", "PreToolUse", "Read", map[string]any{"tool_name": "Bash"}, false},
		{"claude", "SubagentStart", "Explore", map[string]any{"agent_type": "Explore"}, true},
		{"claude", "SubagentStart", "Explore", map[string]any{"agent_type": "Plan", "agent_display_name": "Explore"}, true},
		{"claude", "SubagentStop", "Explore", map[string]any{"agent_type": "Explorer"}, false},
		{"claude", "SessionStart", "startup|resume", map[string]any{"source": "resume"}, true},
		{"claude", "PreCompact", "manual", map[string]any{"trigger": "auto"}, false},
		{"claude", "Notification", "idle_prompt", map[string]any{"notification_type": "idle_prompt"}, true},
	} {
		text := `{"hooks":{"` + c.event + `":[{"matcher":"` + c.matcher + `","hooks":[{"type":"command","command":"c"}]}]}}`
		if c.form == "copilot" {
			text = `{"version":1,` + text[1:]
		}
		set, _ := load(text)
		b := Base{}
		toolbox(&b)
		r := NewRunner(set, b)
		f, _, _ := named(c.event)
		if got := len(r.chosen(f.event, c.fields)) == 1; got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		r.Close()
	}
}

// The hooks of an agent's definition are told of its own end.
func TestAgentStop(t *testing.T) {
	for name, says := range map[string]string{"Stop": "SubagentStop", "agentStop": "subagentStop"} {
		set, problems := load(`{"`+name+`":[{"hooks":[{"command":"c"}]}]}`, func(s *Source) { s.Agent = true })
		if len(problems) > 0 || !set.Has(SubagentStop) || set.Has(Stop) || set.hooks[0].says != says {
			t.Errorf("%s: %v, %+v", name, problems, set.hooks)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"hooks":{"PreToolUse":[{"matcher":"a,b","hooks":[{"type":"command","command":"c","timeout":5}]}]}}`))
	f.Add([]byte(`{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":"c","env":{"A":"b"}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, problems := Load([]Source{{Path: "p", Data: data}})
		for _, e := range set.Entries() {
			if e.Runs || strings.TrimSpace(e.Command) == "" || e.Timeout <= 0 || e.Timeout > maxTimeout {
				t.Errorf("%+v", e)
			}
		}
		for _, p := range problems {
			if p.What == "" || p.Fix == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}

// Hooks of a plugin know its folder; what is no file below it is not read.
func TestPluginHooks(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadPlugin(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a plugin without hooks: %v", err)
	}
	file := filepath.Join(dir, "hooks", "hooks.json")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	text := `{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"true","env":{"A":"b"}}]}]}}`
	for _, name := range []string{outside, file} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src, err := ReadPlugin(dir)
	if err != nil {
		t.Fatal(err)
	}
	set, problems := Load([]Source{src})
	if len(problems) > 0 || !set.Has(Stop) || !slices.Equal(set.hooks[0].env, []string{"CLAUDE_PLUGIN_ROOT=" + dir, "A=b"}) {
		t.Errorf("%+v, %v", set.hooks, problems)
	}
	if err := errors.Join(os.Remove(file), os.Symlink(outside, file)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlugin(dir); err == nil {
		t.Error("a file outside of the plugin was read")
	}
}
