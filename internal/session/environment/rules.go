package environment

import (
	"errors"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/files"
	"github.com/drover-dev/drover/internal/tool/search"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/internal/tool/skilltool"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/todotools"
	"github.com/drover-dev/drover/internal/tool/usertools"
	"github.com/drover-dev/drover/internal/tool/webtool"
)

// NewGate makes a gate of rules. Rules that cannot be parsed are an error, except foreign ones,
// which were written for another program: notes list them, and they apply to the whole tool.
func NewGate(r policy.Rules, foreign []string) (gate *policy.Gate, notes []string, err error) {
	gate, bad := policy.New(r)
	if len(bad) == 0 {
		return gate, nil, nil
	}
	other := func(rule string) bool { return slices.Contains(foreign, rule) }
	r.Ask, r.Deny = slices.DeleteFunc(slices.Clone(r.Ask), other), slices.DeleteFunc(slices.Clone(r.Deny), other)
	r.Allow = slices.DeleteFunc(slices.Clone(r.Allow), other)
	if _, own := policy.New(r); len(own) > 0 {
		return nil, nil, fmt.Errorf("permissions: %w", errors.Join(own...))
	}
	for _, b := range bad {
		notes = append(notes, b.Error()+"; it is from the settings of another program: to deny or to ask it holds "+
			"for the whole tool here, to allow not at all")
	}
	return gate, notes, nil
}

// UsualTools are the tools of a main agent with their names, their aliases and whether they
// only read. They cannot be called.
func UsualTools(folder string) []agent.Tool {
	all := []agent.Tool{shelltool.New(shelltool.Config{Root: folder})}
	all = append(all, files.New(confine.Area{Root: folder})...)
	all = append(all, search.New(confine.Area{Root: folder})...)
	all = append(all, tasktools.New(tasktools.Config{})...)
	all = append(all, tasktools.NewList(nil), tasktools.NewSend(nil), tasktools.NewRead(nil, 0), usertools.NewIntent())
	all = append(all, usertools.NewAsk(nil), skilltool.New(nil, nil))
	all = append(all, webtool.New(webtool.NewFetcher(webtool.Config{})))
	return append(all, todotools.New(todotools.Config{})...)
}

// Gates makes gates, and tells the user of errors in the rules that were written for another
// program.
type Gates struct {
	Foreign []string // those rules
	Report  *tree.Reporter
}

// New makes a gate of rules.
func (g Gates) New(r policy.Rules) (*policy.Gate, error) {
	gate, notes, err := NewGate(r, g.Foreign)
	for _, note := range notes {
		g.Report.Once(note)
	}
	return gate, err
}
