package rules

import (
	"go/ast"
	"go/printer"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Fields that two exported structs may have in common, by name and type. What travels through the wiring is declared
// once, in package options or by the package that uses it, and held by value; a copy of it is one more file that each
// new field changes.
const (
	wiringShares = 4 // where one of the two is of the wiring
	mostShare    = 7 // elsewhere
)

// wiring are the rooms between a settings file and an agent.
var wiring = []string{"internal/options", "internal/project/settings", "internal/assemble*", "internal/session*"}

// spoken are packages whose structs are messages of a protocol, which repeats itself.
var spoken = regexp.MustCompile(`wire|a2a|acp|control|mcp`)

// likeEachOther are pairs that may share more, each with its reason.
var likeEachOther = [][2]string{
	{"internal/frontend/cli/prompt.Prompt", "internal/session.MainConfig"}, // a face does not know the session
	{"internal/frontend/cli/prompt.Prompt", "internal/assemble.Config"},    // the same
	{"internal/frontend/notify.Config", "internal/options.Notify"},         // keys take the place of names of variables
	{"internal/frontend/tui.Access", "internal/project/settings.Saved"},    // one is typed, the other stored
	{"internal/model/anthropic.Config", "internal/model/openai.Config"},    // two clients
	{"internal/project/command.Command", "internal/project/skill.Skill"},   // a skill is offered as a command
}

type structFields struct {
	name   string // package and type
	folder string
	fields map[string]bool
}

func TestSharedFields(t *testing.T) {
	h := theTree(t)
	var all []structFields
	for folder, p := range h.folders {
		if !strings.HasPrefix(folder, "internal/") || spoken.MatchString(folder) {
			continue
		}
		for _, s := range p.prod {
			ast.Inspect(s.file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok || !spec.Name.IsExported() {
					return true
				}
				if st, ok := spec.Type.(*ast.StructType); ok {
					all = append(all, structFields{folder + "." + spec.Name.Name, folder, fieldsOf(h, st)})
				}
				return true
			})
		}
	}
	if len(all) < 100 {
		t.Fatalf("%d structs only", len(all))
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			most := mostShare
			if matches(wiring, a.folder) || matches(wiring, b.folder) {
				most = wiringShares
			}
			var shared []string
			for f := range a.fields {
				if b.fields[f] {
					shared = append(shared, f)
				}
			}
			if len(shared) > most && !slices.ContainsFunc(likeEachOther, func(pair [2]string) bool {
				return pair == [2]string{a.name, b.name} || pair == [2]string{b.name, a.name}
			}) {
				slices.Sort(shared)
				t.Errorf("%s and %s share %d fields, and %d may be: hold one of them by value: %s",
					a.name, b.name, len(shared), most, strings.Join(shared, ", "))
			}
		}
	}
}

// fieldsOf are the exported fields of a struct with their types, without embedded ones.
func fieldsOf(h *tree, st *ast.StructType) map[string]bool {
	out := map[string]bool{}
	for _, f := range st.Fields.List {
		var typ strings.Builder
		_ = printer.Fprint(&typ, h.fset, f.Type)
		for _, name := range f.Names {
			if name.IsExported() {
				out[name.Name+" "+typ.String()] = true
			}
		}
	}
	return out
}
