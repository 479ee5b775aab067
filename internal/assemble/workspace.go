package assemble

import (
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/files"
	"github.com/drover-dev/drover/internal/tool/search"
)

// WorkspaceTools are the file tools of an agent whose session is on another machine: they use files below
// top only, and none that a rule of the session speaks of. dir is where relative paths begin.
func WorkspaceTools(ws fleetwire.Workspace, dir, top string) []agent.Tool {
	rules := policy.Rules{Deny: ws.Deny, Ask: ws.Ask, Cwd: dir, Dirs: []string{top}, Base: ws.Base, Home: ws.Home,
		Copies: policy.CopiesOf(ws.Of, dir, top), Filtered: true}
	for _, c := range ws.Copies {
		rules.Copies = append(rules.Copies, policy.Copy(c))
	}
	gate, _ := policy.New(rules) // the session has reported a bad rule, which still denies
	onFiles := files.New(confine.Area{Root: dir, Dirs: []string{top}, MayOpen: gate.MayOpen})
	return append(onFiles, search.New(confine.Area{Root: dir, Dirs: []string{top}, MayRead: gate.MayRead})...)
}
