package catalog

import (
	"strings"
	"testing"
)

// A program of another vendor is read whole, and a value that cannot be used refuses the definition.
func TestACP(t *testing.T) {
	parse := func(acp string) (Entry, string) {
		e, problems, _ := Parse("/p/a.md", []byte("---\nname: a\ndescription: d\nacp: "+acp+"\n---\nx"), Claude)
		return e, strings.Join(says(problems), "\n")
	}
	e, told := parse(`{command: " run ", args: [1, b], env: {A: 2}, mode: m, login: l, protocol: codex, keys: [K], folders: [f], hosts: [h]}`)
	if a := e.Definition.ACP; told != "" || a == nil || a.Command != "run" || a.Mode != "m" || a.Login != "l" || a.Protocol != "codex" ||
		strings.Join(a.Args, " ") != "1 b" || a.Env["A"] != "2" || strings.Join(a.Keys, "")+strings.Join(a.Folders, "")+strings.Join(a.Hosts, "") != "Kfh" {
		t.Errorf("%+v, %s", a, told)
	}
	for acp, want := range map[string]string{
		`{command: "a\0b"}`:                   `"command"`,
		`{command: x, args: ["a\0b"]}`:        `"args"`,
		`{command: x, mode: [m]}`:             `"mode"`,
		`{command: x, protocol: other}`:       `"protocol: other"`,
		`{command: x, env: {DROVER_HOME: y}}`: `"env: DROVER_HOME"`,
		`{args: [x]}`:                         "no command",
		`{command: x, odd: 1}`:                `"odd"`,
		`a b`:                                 "no object",
	} {
		if _, told := parse(acp); !strings.Contains(told, want) {
			t.Errorf("%s: %q, want %s", acp, told, want)
		}
	}
}
