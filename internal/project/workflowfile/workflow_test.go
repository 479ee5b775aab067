package workflowfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// compile compiles files in memory; the first is a.yaml.
func compile(files map[string]string) (*Plan, []Fault) {
	return Compile("/w/a.yaml", func(path string) ([]byte, error) {
		text, ok := files[path]
		if !ok {
			return nil, errors.New("no such file")
		}
		return []byte(text), nil
	})
}

func good(t *testing.T, text string) *Plan {
	t.Helper()
	p, faults := compile(map[string]string{"/w/a.yaml": text})
	if len(faults) > 0 {
		t.Fatalf("faults: %v", faults)
	}
	return p
}

const whole = `# a comment
name: release
description: Builds and ships.
timeout: 1h
parallel: 3
params:
  version: {required: true, description: what to ship}
  level: {default: patch, enum: [patch, minor]}
  dry:
steps:
  - id: build
    shell: make "$DROVER_PARAM_VERSION"
    env: {MODE: "${{ params.level }}-$${{x}}"}
    cwd: src
    timeout: 10m
    retries: {max: 2, delay: 1s, backoff: 3}
  - id: review
    needs: build
    agent: {type: explore, prompt: "Look at ${{ steps.build.output }}", model: haiku, max_turns: 5, isolation: worktree}
    continue_on_error: true
  - id: gate
    needs: [build, review]
    if: params.dry != 'true' && success()
    approval: {message: "Ship ${{ params.version }}?"}
    timeout: 2h
  - id: tell
    if: ${{ failure() }}
    shell: echo "$DROVER_STEP_GATE_STATUS"
outputs:
  log: ${{ steps.build.output }}
`

func TestParse(t *testing.T) {
	p := good(t, whole)
	build, _ := p.Step("build")
	gate, _ := p.Step("gate")
	review, _ := p.Step("review")
	tell, _ := p.Step("tell")
	for what, ok := range map[string]bool{
		"head":     p.Name == "release" && p.Timeout == time.Hour && p.Parallel == 3 && len(p.Params) == 3 && p.Params[0].Required && *p.Params[1].Default == "patch",
		"build":    build.Line == 11 && build.Cwd == "src" && build.Timeout == 10*time.Minute && build.Retries == Retries{2, time.Second, 3},
		"review":   review.Continue && *review.Agent == Agent{"explore", "Look at ${{ steps.build.output }}", "haiku", 5, "worktree"} && slices.Equal(review.Needs, []string{"build"}),
		"gate":     gate.Approval == "Ship ${{ params.version }}?" && gate.If == "params.dry != 'true' && success()",
		"handler":  tell.If == "failure()" && tell.Handles() && !gate.Handles(),
		"after":    slices.Equal(p.After()["tell"], []string{"build", "review", "gate"}),
		"levels":   fmt.Sprint(p.Levels()) == "[[build] [review] [gate] [tell]]",
		"digest":   len(p.Digest) == 64,
		"delay":    build.Retries.Wait(1) == time.Second && build.Retries.Wait(3) == 9*time.Second && build.Retries.Wait(20) == time.Hour,
		"no retry": review.Retries == Retries{},
	} {
		if !ok {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

// The same file as JSON, indented by tabs as JSON may be, means the same.
func TestParseJSON(t *testing.T) {
	p := good(t, "{\n\t\"name\": \"x\",\n\t\"steps\": [\n\t\t{\"id\": \"a\", \"shell\": \"echo\\thi\"}\n\t]\n}\n")
	if p.Steps[0].Shell != "echo\thi" || p.Steps[0].Line != 4 {
		t.Errorf("%+v", p.Steps[0])
	}
}

func TestPlanJSON(t *testing.T) {
	p := good(t, whole)
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(raw, &back); err != nil || back.Sound() != nil {
		t.Fatal(err, back.Sound())
	}
	if again, _ := json.Marshal(back); string(again) != string(raw) {
		t.Errorf("%s\n%s", raw, again)
	}
}

func TestFaults(t *testing.T) {
	step := func(rest string) string { return "steps:\n  - id: a\n    " + rest }
	two := func(rest string) string { return "steps:\n  - {id: a, shell: x}\n  - id: b\n    " + rest }
	for name, c := range map[string]struct {
		text string
		want []string // in one fault
	}{
		"empty":         {"", []string{"empty"}},
		"list":          {"- a", []string{":1:", "no list of keys"}},
		"broken":        {"steps: [", []string{"not YAML"}},
		"two files":     {step("shell: x") + "\n---\nname: y", []string{"something follows"}},
		"utf8":          {"name: \xff", []string{"UTF-8"}},
		"large":         {"#" + strings.Repeat("x", MaxBytes), []string{"bytes, more than"}},
		"deep":          {"params: " + strings.Repeat("[", 30) + strings.Repeat("]", 30), []string{"in each other"}},
		"alias":         {"params: &p {x: }\noutputs: *p\n" + step("shell: x"), []string{":2:", "alias *p"}},
		"bomb":          {"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nsteps: *c", []string{"alias *a"}},
		"twice":         {"name: a\nname: b\n" + step("shell: x"), []string{":2:", `"name" is given twice`}},
		"unknown":       {"step: 1\n" + step("shell: x"), []string{":1:", `unknown key "step"`, "did you mean steps?"}},
		"unknown deep":  {step("shel: x"), []string{":3:", `"shel"`, "did you mean shell?"}},
		"tag":           {step("shell: !run x"), []string{"tag !run"}},
		"no steps":      {"name: x", []string{"no steps"}},
		"steps":         {"steps: {a: b}", []string{"no list of steps"}},
		"name":          {"name: a b\n" + step("shell: x"), []string{`"a b" is no name`}},
		"id":            {"steps:\n  - {id: A_b, shell: x}", []string{":2:", `"A_b" is no id`}},
		"id missing":    {"steps:\n  - shell: x", []string{":2:", `"" is no id`}},
		"nothing":       {step("needs: []"), []string{"step a does nothing", "give one of shell"}},
		"both":          {step("shell: x\n    approval: y"), []string{"shell and approval"}},
		"empty shell":   {step("shell: ' '"), []string{"shell is empty"}},
		"with":          {step("shell: x\n    with: {a: b}"), []string{":4:", "with has no meaning"}},
		"env of agent":  {step("agent: {type: a, prompt: b}\n    env: {A: b}"), []string{"env has no meaning"}},
		"retry gate":    {step("approval: x\n    retries: 2"), []string{"retries has no meaning"}},
		"env name":      {step("shell: x\n    env: {A-B: c}"), []string{`"A-B" in env is no name`}},
		"env taken":     {step("shell: x\n    env: {DROVER_X: c}"), []string{"DROVER_ are taken"}},
		"timeout":       {step("shell: x\n    timeout: 10"), []string{":4:", "no length of time", "90s"}},
		"too long":      {step("shell: x\n    timeout: 9000h"), []string{"longer than"}},
		"retries":       {step("shell: x\n    retries: 99"), []string{"from 0 to 20"}},
		"parallel":      {"parallel: 0\n" + step("shell: x"), []string{":1:", "from 1 to 32"}},
		"truth":         {step("shell: x\n    continue_on_error: maybe"), []string{"neither true nor false"}},
		"isolation":     {step("agent: {type: a, prompt: b, isolation: box}"), []string{"isolation cannot be"}},
		"agent":         {step("agent: {type: a}"), []string{"needs a type and a prompt"}},
		"two ids":       {"steps:\n  - {id: a, shell: x}\n  - {id: a, shell: y}", []string{":3:", "two steps have the id a", "line 2"}},
		"needs":         {two("shell: x\n    needs: [c]"), []string{":3:", `needs "c"`}},
		"needs near":    {"steps:\n  - {id: build, shell: x}\n  - {id: b, shell: y, needs: biuld}", []string{"did you mean build?"}},
		"self":          {step("shell: x\n    needs: a"), []string{"a -> a"}},
		"circle":        {"steps:\n  - {id: z, shell: x}\n  - {id: a, shell: x, needs: c}\n  - {id: b, shell: x, needs: a}\n  - {id: c, shell: x, needs: b}", []string{":3:", "a -> c -> b -> a"}},
		"if":            {two("shell: x\n    if: params.x == 'y'"), []string{"no params.x", "has no parameters"}},
		"if word":       {two("shell: x\n    if: succss()"), []string{"did you mean success?"}},
		"if end":        {two("shell: x\n    if: \"true &&\""), []string{"ends too early"}},
		"if later":      {two("shell: x\n    if: steps.a.status == 'completed'"), []string{"add a to its needs"}},
		"field":         {two("shell: x\n    needs: a\n    if: steps.a.result"), []string{`no "result"`}},
		"prompt":        {two("agent: {type: a, prompt: \"${{ steps.c.output }}\"}"), []string{`no step "c"`}},
		"open":          {two("approval: \"${{ params\""), []string{"has no }}"}},
		"pasted":        {"params: {x: }\n" + step("shell: echo ${{ params.x }}"), []string{":3:", `write "$DROVER_PARAM_X"`}},
		"pasted step":   {two("needs: a\n    shell: echo ${{ steps.a.exit_code }}"), []string{`write "$DROVER_STEP_A_EXIT_CODE"`}},
		"pasted odd":    {two("shell: echo ${{ 1 2 }}"), []string{"use variables such as"}},
		"variable":      {"params: {path: }\n" + step("shell: echo $DROVER_PARAM_PAHT"), []string{"no DROVER_PARAM_PAHT", "did you mean DROVER_PARAM_PATH?"}},
		"variable late": {two("shell: echo $DROVER_STEP_A_OUTPUT"), []string{"add a to its needs"}},
		"same variable": {"params: {a-b: , a_b: }\n" + step("shell: x"), []string{"same variable DROVER_PARAM_A_B"}},
		"param name":    {"params: {A: }\n" + step("shell: x"), []string{`"A" is no name`}},
		"param both":    {"params: {a: {required: true, default: x}}\n" + step("shell: x"), []string{"required and has a default"}},
		"param enum":    {"params: {a: {default: x, enum: [y]}}\n" + step("shell: x"), []string{"is one of y"}},
		"outputs":       {step("shell: x") + "\noutputs: {o: \"${{ steps.b.output }}\"}", []string{":4:", `outputs.o: there is no step "b"`}},
		"no file":       {step("workflow: b"), []string{"/w/b.yaml", "cannot be read"}},
		"itself":        {step("workflow: a.yaml"), []string{"part of itself: /w/a.yaml -> /w/a.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, faults := compile(map[string]string{"/w/a.yaml": c.text})
			if p != nil || len(faults) == 0 {
				t.Fatal("no fault was found")
			}
			if !slices.ContainsFunc(faults, func(f Fault) bool {
				return !slices.ContainsFunc(c.want, func(w string) bool { return !strings.Contains(f.Error(), w) })
			}) {
				t.Errorf("no fault says %q: %v", c.want, faults)
			}
		})
	}
}

func TestNested(t *testing.T) {
	files := map[string]string{
		"/w/a.yaml":     "steps:\n  - {id: s, workflow: sub/b.yaml, with: {x: \"1\"}}",
		"/w/sub/b.yaml": "params: {x: {required: true, enum: [\"1\", \"2\"]}}\nsteps:\n  - {id: t, workflow: ../c}",
		"/w/c.yaml":     "name: c\nsteps:\n  - {id: u, shell: true}",
	}
	p, faults := compile(files)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if got := p.Steps[0].Workflow.Plan.Steps[0].Workflow.Plan.Name; got != "c" {
		t.Errorf("the innermost is %q", got)
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"missing": {"/w/a.yaml", "steps:\n  - {id: s, workflow: sub/b.yaml}", "/w/a.yaml:2: step s: parameter x is missing"},
		"unknown": {"/w/a.yaml", "steps:\n  - {id: s, workflow: sub/b.yaml, with: {x: \"1\", y: z}}", `unknown parameter "y"`},
		"enum":    {"/w/a.yaml", "steps:\n  - {id: s, workflow: sub/b.yaml, with: {x: \"3\"}}", "is one of 1, 2"},
		"inner":   {"/w/c.yaml", "steps:\n  - {id: u, shell: true, needs: v}", `/w/c.yaml:2: step u needs "v"`},
		"circle":  {"/w/c.yaml", "steps:\n  - {id: u, workflow: a.yaml}", "/w/a.yaml -> /w/sub/b.yaml -> /w/c.yaml -> /w/a.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			other := maps.Clone(files)
			other[c.file] = c.text
			if _, faults := compile(other); len(faults) == 0 || !strings.Contains(faults[0].Error(), c.want) {
				t.Errorf("%v, want %q", faults, c.want)
			}
		})
	}
	before := p.Digest
	files["/w/c.yaml"] += "\n# changed"
	if p, _ := compile(files); p.Digest == before {
		t.Error("a change within a nested file does not change the digest")
	}
	deep := map[string]string{}
	for i := range 6 {
		deep[fmt.Sprintf("/w/%d.yaml", i)] = fmt.Sprintf("steps:\n  - {id: s, workflow: %d.yaml}", i+1)
	}
	deep["/w/a.yaml"], deep["/w/6.yaml"] = "steps:\n  - {id: s, workflow: 0.yaml}", "steps:\n  - {id: s, shell: x}"
	if _, faults := compile(deep); len(faults) == 0 || !strings.Contains(faults[0].Text, "more than 5 deep") {
		t.Errorf("seven deep: %v", faults)
	}
}

func TestValues(t *testing.T) {
	p := good(t, whole)
	for name, c := range map[string]struct {
		given map[string]string
		want  string // of an error
	}{
		"good":    {map[string]string{"version": "1"}, ""},
		"missing": {nil, "parameter version is missing"},
		"enum":    {map[string]string{"version": "1", "level": "huge"}, "it is one of patch, minor"},
		"unknown": {map[string]string{"version": "1", "lever": "x"}, "did you mean level?"},
		"nul":     {map[string]string{"version": "\x00"}, "NUL"},
		"long":    {map[string]string{"version": strings.Repeat("x", MaxValue+1)}, "more than"},
	} {
		got, err := p.Values(c.given)
		if c.want == "" && (err != nil || got["level"] != "patch" || got["dry"] != "" || len(got) != 3) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// scope is a world in which step a has ended.
func scope(failed bool) Scope {
	return Scope{Params: map[string]string{"x": "1", "no": "false", "none": ""}, Failed: failed, Step: func(id, field string) (string, error) {
		if id != "a" {
			return "", fmt.Errorf("unknown step %s", id)
		}
		return map[string]string{"status": "completed", "output": "it's", "exit_code": "0"}[field], nil
	}}
}

func TestExpressions(t *testing.T) {
	for text, want := range map[string]string{
		"true": "true", "false": "false", "12": "12", "'it''s'": "it's", `"a ""b"""`: `a "b"`, "params.x": "1", "params.none": "",
		"params.x == 1": "true", "params.x != '1'": "false", "steps.a.exit_code == 0": "true", "steps.a.output == 'it''s'": "true",
		"!params.no": "true", "!!params.x": "true", "params.none || 'other'": "other", "params.x && 'then'": "then", "params.no && steps.b.output": "false",
		"true || false && false": "true", "(true || false) && false": "false", "true == !false": "true", "params.x || steps.b.output": "1",
		"success()": "true", "failure()": "false", "always()": "true",
	} {
		e, err := parseExpr(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := e.root(scope(false)); got != want || err != nil {
			t.Errorf("%s is %q, want %q (%v)", text, got, want, err)
		}
	}
	for _, text := range []string{"", "a", "()", "(true", "true)", "true true", "&& true", "true ==", "1 = 1", "'open", "success", "success(1)", "params", "params.a.b", "steps.a",
		"steps.a.b", "true == true == true", "a.b", "$x", "true;", strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100), strings.Repeat("!", 100) + "true", strings.Repeat("x", 3000), "."} {
		if e, err := parseExpr(text); err == nil {
			t.Errorf("%.20q was read as %+v", text, e)
		}
	}
}

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		cond          string
		well, failing bool
	}{
		{"", true, false}, {"params.x", true, false}, {"params.no", false, false}, {"success()", true, false}, {"failure()", false, true}, {"always()", true, true},
		{"always() && params.no", false, false}, {"failure() || params.x", true, true},
	} {
		for _, failed := range []bool{false, true} {
			want := c.well
			if failed {
				want = c.failing
			}
			if got, err := (Step{If: c.cond}).Wanted(scope(failed)); got != want || err != nil {
				t.Errorf("if %q, failed %v: %v (%v)", c.cond, failed, got, err)
			}
		}
	}
}

func TestFill(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "a ${{ params.x }} b": "a 1 b", "${{ '}}' }}": "}}", "$${{ x }}": "${{ x }}", "${{ steps.a.output }}${{ params.x }}": "it's1", "{{ }} $x": "{{ }} $x",
	} {
		if got, err := Fill(text, scope(false)); got != want || err != nil {
			t.Errorf("%q becomes %q, want %q (%v)", text, got, want, err)
		}
	}
}

// What a line does not name is not given to it, and what is given is one value.
func TestVars(t *testing.T) {
	p := good(t, `
params: {x: , no: , none: }
steps:
  - {id: a, shell: "true"}
  - {id: c, shell: "true"}
  - id: b
    needs: [a, c]
    shell: echo "$DROVER_STEP_A_OUTPUT" "$DROVER_PARAM_X"
    env: {Q: "${{ steps.a.status }}"}
`)
	b, _ := p.Step("b")
	got, err := p.Vars(b, scope(false))
	want := []string{"DROVER_PARAM_X=1", "DROVER_PARAM_NO=false", "DROVER_PARAM_NONE=", "DROVER_STEP_A_OUTPUT=it's", "Q=completed"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, want %q (%v)", got, want, err)
	}
	huge := scope(false)
	huge.Params = map[string]string{"x": strings.Repeat("x", maxVars)}
	if _, err := p.Vars(b, huge); err == nil {
		t.Error("more variables than a command can have")
	}
}

func TestDrawings(t *testing.T) {
	p := good(t, whole)
	for name, c := range map[string]struct{ text, want string }{
		"text":    {p.Text(), "  gate (approval) after build, review if params.dry != 'true' && success()\n"},
		"last":    {p.Text(), "4\n  tell (shell) after all others if failure()\n"},
		"dot":     {p.Dot(), "  \"build\" -> \"review\"\n"},
		"mermaid": {p.Mermaid(), "  s0 --> s1\n"},
	} {
		if !strings.Contains(c.text, c.want) {
			t.Errorf("%s lacks %q:\n%s", name, c.want, c.text)
		}
	}
}

// Whatever stands in a file, it is answered with a plan that can be run or with faults.
func FuzzCompile(f *testing.F) {
	f.Add(whole)
	f.Add(`{"steps":[{"id":"a","shell":"x"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, faults := compile(map[string]string{"/w/a.yaml": text})
		if (p == nil) == (len(faults) == 0) {
			t.Fatalf("plan %v with %d faults", p, len(faults))
		}
		if p == nil {
			return
		}
		raw, err := json.Marshal(p)
		var back Plan
		if err != nil || json.Unmarshal(raw, &back) != nil || back.Sound() != nil {
			t.Fatalf("the plan does not survive as JSON: %v %v", err, back.Sound())
		}
		if n := len(slices.Concat(p.Levels()...)); n != len(p.Steps) {
			t.Errorf("%d of %d steps are on a level", n, len(p.Steps))
		}
	})
}

// An expression that is read can be computed, and one that is put between
// parentheses means the same.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{"params.x == 'a' || !steps.a.output", "success() && (failure() || always())", "'it''s'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseExpr(text)
		if err != nil {
			return
		}
		s := scope(false)
		s.Step = func(string, string) (string, error) { return "y", nil }
		one, err := e.root(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > maxExpr-2 {
			return
		}
		again, err := parseExpr("(" + text + ")")
		if err != nil {
			if strings.Contains(err.Error(), "in each other") {
				return
			}
			t.Fatal(err)
		}
		if two, _ := again.root(s); one != two {
			t.Errorf("%q and %q", one, two)
		}
	})
}

// The schema beside the documentation knows the keys that the reader knows.
func TestSchema(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/workflow.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	for of, keys := range map[string]map[string]json.RawMessage{"the workflow": schema.Properties, "a step": schema.Defs["step"].Properties, "agent": schema.Defs["agent"].Properties,
		"retries": schema.Defs["retries"].Properties, "parameter p": schema.Defs["param"].Properties} {
		if len(keys) == 0 {
			t.Errorf("the schema says nothing of %s", of)
		}
		for key := range keys {
			doc := map[string]string{"the workflow": key + ": 1", "a step": "steps: [{" + key + ": 1}]", "agent": "steps: [{agent: {" + key + ": 1}}]",
				"retries": "steps: [{retries: {" + key + ": 1}}]", "parameter p": "params: {p: {" + key + ": 1}}"}[of]
			_, faults := parse("f", []byte(doc))
			for _, f := range faults {
				if strings.HasPrefix(f.Text, "unknown key") {
					t.Errorf("of %s the schema has %s: %v", of, key, f)
				}
			}
		}
	}
	probe := func(doc string) string {
		_, faults := parse("f", []byte(doc))
		for _, f := range faults {
			if strings.HasPrefix(f.Text, "unknown key") {
				return f.Text
			}
		}
		return ""
	}
	if probe("steps: [{nothing: 1}]") == "" {
		t.Error("an unknown key was taken")
	}
}
