package catalog

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/project/definitions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// says are problems without their file and their fix.
func says(problems []Problem) []string {
	var out []string
	for _, p := range problems {
		_, text, _ := strings.Cut(Problem{File: "\x00", Line: p.Line, Severity: p.Severity, What: p.What}.String(), "\x00")
		out = append(out, strings.TrimLeft(text, ": "))
	}
	return out
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %#v\nwant %#v", what, got, want)
	}
}

// Every file of a collection of working definitions loads, and nothing is found
// wrong with it. A larger one than that in testdata is named by
// DROVER_TEST_AGENTS.
func TestReal(t *testing.T) {
	dirs := []string{"testdata/real"}
	if more := os.Getenv("DROVER_TEST_AGENTS"); more != "" {
		dirs = append(dirs, more)
	} else {
		t.Log("DROVER_TEST_AGENTS is not set: ONLY THE SAMPLE IN testdata WAS READ")
	}
	for _, dir := range dirs {
		count := 0
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) != ".md" || e.Name() == "README.md" {
				return err
			}
			count++
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			got, problems, ok := Parse(path, data, dialectOf(path, definitions.Place{}))
			if !ok || got.Name == "" || got.Description == "" || got.Prompt == "" {
				t.Errorf("%s: lost, or not whole", path)
			}
			for _, p := range problems {
				if p.Severity != Note {
					t.Errorf("%s", p)
				}
			}
			return nil
		})
		if err != nil || count < 9 {
			t.Errorf("%s: %d files, %v", dir, count, err)
		}
	}
}

func TestRealValues(t *testing.T) {
	get := func(path string) Entry {
		data, err := os.ReadFile(filepath.Join("testdata", "real", path))
		if err != nil {
			t.Fatal(err)
		}
		e, _, ok := Parse(path, data, dialectOf(path, definitions.Place{}))
		if !ok {
			t.Fatalf("%s is not loaded", path)
		}
		return e
	}
	e := get("claude/plugins__agent-teams__agents__team-implementer.md")
	same(t, "name", e.Name, "team-implementer")
	same(t, "tools", e.Tools, []string{"Read", "Write", "Edit", "Glob", "Grep", "Bash", "TaskList", "TaskGet", "TaskUpdate", "SendMessage"})
	same(t, "model", e.Model, "opus")
	same(t, "rest", e.Rest, []Key{{Name: "color", Line: 6, Known: true, Value: "yellow"}})
	same(t, "MCP tool", get("claude/plugins__meigen-ai-design__agents__image-generator.md").Tools, []string{"mcp__meigen__generate_image"})
	if e := get("claude/plugins__error-debugging__agents__debugger.md"); e.Tools != nil {
		t.Errorf("tools that were not named are %v, not inherited", e.Tools)
	}
	e = get("copilot/laravel-expert-agent.agent.md")
	same(t, "name", []string{e.Name, e.DisplayName}, []string{"laravel-expert-agent", "Laravel Expert Agent"})
	same(t, "model", e.Model, "GPT-4.1 | 'gpt-5' | 'Claude Sonnet 4.5'")
	same(t, "tools", e.Tools, []string{"Glob", "Grep", "Bash", "Edit", "Write", "WebFetch"})
	e = get("copilot/diffblue-cover.agent.md")
	same(t, "server tools", e.Tools, []string{"DiffblueCover/*"})
	if server, ok := e.MCPServers[0].(map[string]any); len(e.MCPServers) != 1 || !ok || server["DiffblueCover"] == nil {
		t.Errorf("servers %v", e.MCPServers)
	}
}

// The oddities of real files, each with what is said of it, and nothing
// else.
func TestOddities(t *testing.T) {
	long := strings.Repeat("very ", 300) + "long"
	for _, c := range []struct {
		name, text  string
		description string
		says        []string
	}{
		{"colon", "---\nname: odd\ndescription: Use when: it breaks\n---\nBody", "Use when: it breaks",
			[]string{"3: warning: this is not YAML, and was read line by line: mapping values are not allowed in this context"}},
		{"dialogue", "---\nname: odd\ndescription: Reviews.\n\n<example>\nContext: code\nuser: \"look\"\nassistant: \"yes\"\nuser: \"again\"\n</example>\nmodel: opus\n---\nBody",
			"Reviews.\n\n<example>\nContext: code\nuser: \"look\"\nassistant: \"yes\"\nuser: \"again\"\n</example>",
			[]string{"5: warning: this is not YAML, and was read line by line: could not find expected ':'"}},
		{"breaks", "---\nname: odd\ndescription: First: one.\\nSecond <example>\n---\nBody", "First: one.\nSecond <example>",
			[]string{"3: warning: this is not YAML, and was read line by line: mapping values are not allowed in this context"}},
		{"twice", "---\nname: odd\ndescription: first\ndescription: second\n---\nBody", "first", []string{`4: warning: key "description" comes twice; the first counts`}},
		{"no-description", "---\nname: odd\n---\nBody", "", []string{"warning: there is no description, so nobody knows when to use the agent"}},
		{"no-name", "---\ndescription: x\n---\nBody", "x", []string{`warning: there is no name; that of the file, "odd", is taken`}},
		{"bad-name", "---\nname: a/b\ndescription: x\n---\nBody", "x", []string{`2: warning: the name "a/b" cannot be used; that of the file, "odd", is taken`}},
		{"long", "---\nname: odd\ndescription: " + long + "\n---\nBody", long, nil},
		{"block", "---\nname: odd\ndescription: |\n  one\n  two: <three>\n---\nBody", "one\ntwo: <three>", nil},
		{"bom", "\ufeff---\nname: odd\ndescription: x\n---\nBody", "x", nil},
		{"crlf", "---\r\nname: odd\r\ndescription: x\r\n---\r\nBody\r\n", "x", nil},
		{"tabs", "---\nname: odd\ndescription: x\nmetadata:\n\ta: b\n---\nBody", "x", []string{"5: warning: a tab where YAML wants blanks; it was read as blanks"}},
		{"empty-body", "---\nname: odd\ndescription: x\n---\n", "x", []string{"warning: there is no prompt"}},
		{"unknown-key", "---\nname: odd\ndescription: x\nversion: 2\nflavour: sweet\n---\nBody", "x", []string{"4: note: keys that are not known here, without effect: version, flavour"}},
		{"spelling", "---\nname: odd\ndescription: x\nallowed-tools: Read\nDisallowed_Tools: Bash\n---\nBody", "x", []string{
			`4: warning: key "allowed-tools" is not known, and has no effect`, `5: warning: key "Disallowed_Tools" is not known, and has no effect`}},
		{"alias", "---\nname: odd\ndescription: x\nmetadata: &d x\ntarget: *d\n---\nBody", "x", []string{"5: warning: the alias *d is not expanded"}},
		{"control", "---\nname: odd\ndescription: \"red \\x1b[31m\"\n---\nBody", "red \x1b[31m", nil},
		{"shapes", "---\nname: odd\ndescription: [a, b]\nmaxTurns: many\nbackground: maybe\neffort: huge\npermissionMode: god\nisolation: vm\nonEnd: party\nhooks: x\nskills: {a: b}\n---\nBody", "", []string{
			"3: warning: description is not a text; it does not count", "11: warning: skills is not a list; it counts as an empty one",
			"3: warning: there is no description, so nobody knows when to use the agent",
			`4: warning: maxTurns is "many", which is no number above 0; it does not count`, `6: warning: effort is "huge", which is not known; it does not count`,
			`7: warning: permissionMode is "god", which is not known; it does not count`, `8: warning: isolation is "vm", which is not known; it does not count`,
			`9: warning: onEnd is "party", which is not known; it does not count`, `5: warning: background is "maybe"; it does not count`,
			"10: warning: hooks is not an object of events; it does not count"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, problems, ok := Parse("/p/odd.md", []byte(c.text), Claude)
			if !ok || e.Name != "odd" || e.Description != c.description || e.Prompt != "Body" && c.name != "empty-body" {
				t.Errorf("%v: %+v", ok, e)
			}
			same(t, "said", says(problems), c.says)
		})
	}
}

// What is no definition at all is named, with the reason.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, file, text, says string }{
		{"unterminated", "odd.md", "---\nname: odd\n", "1: error: the front matter that begins here has no end"},
		{"none", "README.md", "# Read me\n", "warning: it has no front matter, so it is not an agent"},
		{"binary", "odd.md", "---\nname: \xff\n---\n", "error: the file is not valid UTF-8"},
		{"nested", "odd.md", "---\nmetadata: " + strings.Repeat("[", 30) + strings.Repeat("]", 30) + "\n---\nx", "2: error: more than 16 levels or 5000 values: too large"},
		{"name", "(((.md", "---\ndescription: x\n---\nx", `error: the name "(((" cannot be used`},
		{"reserved", "odd.md", "---\nname: Main Session\ndescription: x\n---\nx", `2: error: the name "main-session" has a meaning of its own`},
		{"tools", "odd.md", "---\nname: odd\ndescription: x\ntools: Foo, NotebookEdit, Bash(ls)\n---\nx", "4: error: no tool is left: there is no Foo, NotebookEdit, Bash(ls)"},
		{"forbidden-map", "odd.md", "---\nname: odd\ndescription: x\ndisallowedTools: {Bash: true}\n---\nx",
			"4: error: disallowedTools is not a list of names, so nobody knows what is forbidden"},
		{"forbidden-nested", "odd.md", "---\nname: odd\ndescription: x\ndisallowedTools: [[Bash]]\n---\nx",
			"4: error: disallowedTools is not a list of names, so nobody knows what is forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, problems, ok := Parse("/p/"+c.file, []byte(c.text), Claude)
			if got := says(problems); ok || len(got) == 0 || got[len(got)-1] != c.says || e.Name != "" {
				t.Errorf("%v, %+v, said %q", ok, e, got)
			}
		})
	}
}

func TestTools(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		yaml    string
		tools   []string
		not     []string
		spawns  []string
		says    []string
	}{
		{Claude, "", nil, nil, nil, nil},
		{Claude, "tools: []", []string{}, nil, nil, nil},
		{Claude, "tools:", []string{}, nil, nil, []string{"4: warning: tools is empty, so the agent has none"}},
		{Claude, "tools: '*'", nil, nil, nil, nil},
		{Claude, "tools: Read, Grep,Glob", []string{"Read", "Grep", "Glob"}, nil, nil, nil},
		{Claude, "tools: Read Grep", []string{"Read", "Grep"}, nil, nil, nil},
		{Claude, "tools: [FileRead, view, bash, TodoWrite]", []string{"Read", "Bash", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"}, nil, nil, nil},
		{Claude, "tools: Task(Code Reviewer, explore), Read", []string{"Agent(code-reviewer,explore)", "Read"}, nil, []string{"code-reviewer", "explore"}, nil},
		{Claude, "tools: Agent(), Read", []string{"Agent()", "Read"}, nil, []string{}, nil},
		{Claude, "tools: mcp__db__query, Read", []string{"mcp__db__query", "Read"}, nil, nil, nil},
		{Claude, "tools: Read, Reed, NotebookEdit", []string{"Read"}, nil, nil, []string{"4: warning: there is no Reed", "4: note: Drover has no NotebookEdit"}},
		{Claude, "tools: Read, Bash(git:*)", []string{"Read"}, nil, nil, []string{"4: warning: a rule in brackets cannot be kept here; the tool is left out: Bash(git:*)"}},
		{Claude, "tools: {a: b}", []string{}, nil, nil, []string{"4: warning: tools is not a list; it counts as an empty one"}},
		{Claude, "disallowedTools: Bash, FileWrite", nil, []string{"Bash", "Write"}, nil, nil},
		{Claude, "disallowedTools: [Bash(rm:*), Agent(x)]", nil, []string{"Agent", "Bash"}, nil,
			[]string{"4: warning: a rule in brackets cannot be kept here; the whole tool is forbidden: Bash(rm:*), Agent(x)"}},
		{Claude, "disallowedTools: Bush", nil, nil, nil, []string{"4: warning: there is no Bush to forbid"}},
		{Claude, "disallowedTools: '*'", []string{}, nil, nil, nil},
		{Copilot, "", nil, nil, nil, nil},
		{Copilot, "tools: ['*']", nil, nil, nil, nil},
		{Copilot, "tools: []", []string{}, nil, nil, nil},
		{Copilot, "tools: [execute, read, edit, search, agent, web, todo]", []string{"Bash", "TaskOutput", "TaskStop", "Read", "Edit", "Write", "Glob", "Grep", "Agent",
			"WebFetch", "WebSearch", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"}, nil, nil, nil},
		{Copilot, "tools: [execute/getTerminalOutput, edit/createFile, web/fetch]", []string{"TaskOutput", "Write", "WebFetch"}, nil, nil, nil},
		{Copilot, "tools: [github/*, db/query, search]", []string{"github/*", "db/query", "Glob", "Grep"}, nil, nil, nil},
		{Copilot, "tools: [db]\nmcp-servers: {db: {command: x}}", []string{"db/*"}, nil, nil, nil},
		{Claude, "tools: [db]\nmcp-servers: {db: {command: x}}", []string{"db/*"}, nil, nil, nil},
		{Copilot, "tools: [atlassian, vscode/api]", []string{}, nil, nil, []string{"4: note: tools not known here, and ignored: atlassian, vscode/api"}},
		{Copilot, "tools: [agent]\nagents: [Code Reviewer]", []string{"Agent(code-reviewer)", "TaskOutput", "TaskStop"}, nil, []string{"code-reviewer"}, nil},
		{Copilot, "agents: []", nil, []string{"Agent"}, []string{}, nil},
		{Copilot, "agents: ['*']", nil, nil, nil, nil},
		{Copilot, "agents: [x]", nil, nil, []string{"x"}, []string{"4: warning: which agents it may start is not kept beside all tools"}},
	} {
		t.Run(string(c.dialect)+"/"+c.yaml, func(t *testing.T) {
			e, problems, ok := Parse("/p/odd.agent.md", []byte("---\nname: odd\ndescription: x\n"+c.yaml+"\n---\nBody"), c.dialect)
			if !ok {
				t.Fatal("not loaded")
			}
			same(t, "tools", e.Tools, c.tools)
			same(t, "forbidden", e.DisallowedTools, c.not)
			same(t, "spawns", e.Spawns, c.spawns)
			same(t, "said", says(problems), c.says)
		})
	}
}

func TestFields(t *testing.T) {
	e, problems, ok := Parse("/p/x.md", []byte(`---
name: "My Agent"
description: Does it
model: [opus, "GPT-4.1"]
skills: commit, review
initialPrompt: Begin
maxTurns: 12
background: true
effort: HIGH
permissionMode: auto
isolation: worktree
onEnd: reparent
criticalSystemReminder_EXPERIMENTAL: Never push
mcpServers: [db, {web: {url: "https://x"}}]
hooks: {Stop: [{hooks: [{type: command, command: make}]}]}
disable-model-invocation: true
user-invokable: false
color: red
---

The prompt.
`), Claude)
	if !ok || problems != nil {
		t.Fatalf("%v, %v", ok, problems)
	}
	e.Hooks, e.Background = map[string]any{"Stop": len(e.Hooks)}, new(*e.Background)
	want := Entry{Dialect: Claude, NoUser: true, Rest: []Key{{Name: "color", Line: 18, Known: true, Value: "red"}}}
	want.NoModel = true
	want.Name, want.DisplayName, want.Description, want.Prompt, want.Source = "my-agent", "My Agent", "Does it", "The prompt.", "/p/x.md"
	want.Model, want.Skills, want.InitialPrompt, want.MaxTurns, want.Background = "opus | GPT-4.1", []string{"commit", "review"}, "Begin", 12, new(true)
	want.Effort, want.PermissionMode, want.Isolation, want.OnEnd, want.CriticalReminder = "high", "default", "worktree", "reparent", "Never push"
	want.MCPServers, want.Hooks = []any{"db", map[string]any{"web": map[string]any{"url": "https://x"}}}, map[string]any{"Stop": 1}
	same(t, "entry", e, want)
	c, _, _ := Parse("/p/File Name.agent.md", []byte("---\nname: Other\ndescription: x\ninfer: false\n---\nB"), Copilot)
	same(t, "by file", []any{c.Name, c.DisplayName, c.NoModel, c.NoUser}, []any{"file-name", "Other", true, false})
	_, problems, _ = Parse("/p/x.agent.md", []byte("---\ndescription: x\n---\n\n"+strings.Repeat("x", maxPrompt+1)), Copilot)
	same(t, "long prompt", says(problems), []string{"4: warning: the prompt has 30001 characters, and Copilot takes 30000"})
}

func TestJSON(t *testing.T) {
	entries, problems, err := ParseJSON("--agents", []byte(`{
		"Code Reviewer": {"description": "d", "prompt": "p", "tools": ["Read", "Agent(a,b)"], "disallowedTools": ["Bash"], "model": "opus", "mcpServers": ["db", {"w": {"port": 1}}],
			"skills": ["s"], "initialPrompt": "i", "maxTurns": 3, "background": false, "effort": 5, "permissionMode": "plan", "criticalSystemReminder_EXPERIMENTAL": "c",
			"memory": "user", "observer": null, "strange": 1, "hooks": {"Stop": []}},
		"all": {"description": "d", "prompt": "p", "tools": null, "disallowedTools": null},
		"none": {"description": "d", "prompt": "p", "tools": []},
		"no-prompt": {"description": "d"},
		"no-object": 7,
		"ALL": {"description": "again", "prompt": "p"},
		"text": {"description": "d", "prompt": "p", "tools": "Read"},
		"bad/name": {"description": "d", "prompt": "p"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	same(t, "names", names, []string{"code-reviewer", "all", "none", "text"})
	e := entries[0]
	same(t, "values", []any{e.DisplayName, e.Tools, e.Spawns, e.DisallowedTools, e.MaxTurns, *e.Background, e.Effort, e.PermissionMode, e.CriticalReminder, len(e.MCPServers), e.Source},
		[]any{"Code Reviewer", []string{"Read", "Agent(a,b)"}, []string{"a", "b"}, []string{"Bash"}, 3, false, "5", "plan", "c", 2, "--agents"})
	same(t, "absent and empty", []any{entries[1].Tools, entries[2].Tools, entries[3].Tools}, []any{[]string(nil), []string{}, []string{}})
	same(t, "said", says(problems), []string{
		`note: agent "Code Reviewer": keys that are not known here, without effect: strange`, `error: agent "no-prompt": there is no prompt`,
		`error: agent "no-object": it is not an object`, `warning: agent "all": the name comes twice; the first counts`,
		`warning: agent "text": tools is not a list; it counts as an empty one`, `error: agent "bad/name": the name "bad/name" cannot be used`})
	for _, bad := range []string{"", "[]", "{", `{"a": {}`, `{"a": }`, "{} {}", "{}}", "7", strings.Repeat(" ", maxJSON) + "{}"} {
		if _, _, err := ParseJSON("--agents", []byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "--agents: ") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/real/*/*.md")
	if err != nil || len(paths) < 9 {
		f.Fatal(paths, err)
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, true)
	}
	f.Add([]byte("---\nname: x\ntools: Agent(a, Bash(\ndisallowedTools: [Agent(), '*']\nagents: {}\n---\n"), false)
	f.Add([]byte("---\nname: x\ntools: [[a], {b: c}]\nmodel: {}\nmcpServers: 7\nhooks: []\n---\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, copilot bool) {
		d := Claude
		if copilot {
			d = Copilot
		}
		e, problems, ok := Parse("/p/file.agent.md", data, d)
		if !ok {
			if n := len(problems); n == 0 || problems[n-1].Severity == Note {
				t.Errorf("refused without a reason: %v", problems)
			}
			return
		}
		if e.Name == "" || strings.ContainsFunc(e.Name, func(r rune) bool { return strings.ContainsRune(" /,()\n\x00", r) }) {
			t.Errorf("name %q", e.Name)
		}
		if slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == Error }) {
			t.Errorf("loaded with an error: %v", problems)
		}
		for _, tool := range e.Tools {
			name, _, _ := strings.Cut(tool, "(")
			if !slices.Contains(own(), name) && !foreign(tool, d) && !foreign(name, d) && !brought(e, tool) {
				t.Errorf("tool %q", tool)
			}
		}
	})
}

// brought reports whether a tool stands for all of a server that the definition
// brings with it, which may be called as it likes in either dialect.
func brought(e Entry, tool string) bool {
	name, all := strings.CutSuffix(tool, "/*")
	return all && slices.ContainsFunc(e.MCPServers, func(server any) bool {
		one, _ := server.(map[string]any)
		_, named := one[name]
		return named
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"a": {"description": "d", "prompt": "p", "tools": ["Agent(x,"], "mcpServers": {"a": [[[1]]]}}}`))
	f.Add([]byte(`{"a": {"description": "d", "description": [], "prompt": 1e99}, "b": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _, err := ParseJSON("--agents", data)
		if err != nil && entries != nil {
			t.Error("agents beside an error")
		}
		for _, e := range entries {
			if e.Name == "" || e.Prompt == "" || e.Description == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}
