package agents

import (
	"errors"
	"slices"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// known is a set that can resolve agents of these types, and start none. Its models are those of a provider whose key
// is set.
func known(t *testing.T, defs ...subagent.Definition) (*Set, Caller) {
	t.Helper()
	models := &provider.Finder{}
	t.Cleanup(models.Close)
	catalog := subagent.NewCatalog(defs...)
	s := &Set{Tree: &tree.Tree{Options: options.Default()},
		cfg: Config{Models: models, Catalog: func() subagent.Catalog { return catalog }}}
	s.Options.Model = "sonnet"
	s.checkouts = environment.NewCheckouts(nil, nil, nil, nil)
	return s, Caller{Cwd: t.TempDir(), Env: []string{"ANTHROPIC_API_KEY=x"}}
}

// The call decides before the definition, and that before the one who asks;
// inherit means the last, whoever says it.
func TestChildResolution(t *testing.T) {
	for _, tt := range []struct {
		name                     string
		in, def, parent, want    int
		inM, defM, parentM, wntM string
	}{
		{"call", 1, 2, 3, 1, "opus", "haiku", "sonnet", "claude-opus-5-5"},
		{"definition", 0, 2, 3, 2, "", "haiku", "sonnet", "claude-haiku-5-5"},
		{"parent", 0, 0, 3, 3, "", "", "opus", "claude-opus-5-5"},
		{"default", 0, 0, 0, 0, "", "inherit", "", "claude-sonnet-5-5"},
		{"inherit", 1, 0, 3, 1, "inherit", "haiku", "opus", "claude-opus-5-5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, me := known(t, subagent.Definition{Name: "x", Prompt: "x", MaxTurns: tt.def, Model: tt.defM})
			me.Model, me.MaxTurns = tt.parentM, tt.parent
			c, err := s.Resolve(subagent.Input{Type: "x", Prompt: "x", MaxTurns: tt.in, Model: tt.inM}, me)
			if err != nil || c.MaxTurns != tt.want || c.Model != tt.wntM {
				t.Errorf("%d turns, model %q, %v; want %d, %q", c.MaxTurns, c.Model, err, tt.want, tt.wntM)
			}
		})
	}
}

// Agent(x, y) in a list of tools is the tool Agent for x and y only, and a child
// of such an agent may start no more than it.
func TestSpawns(t *testing.T) {
	s, me := known(t,
		subagent.Definition{Name: "lead", Prompt: "x", Tools: []string{"Read", "Agent(Helper, other)"}},
		subagent.Definition{Name: "helper", Prompt: "x", Tools: []string{"Agent(other,stranger)", "Read"}},
		subagent.Definition{Name: "other", Prompt: "x"}, subagent.Definition{Name: "stranger", Prompt: "x"})
	start := func(who Caller, kind string) (Caller, error) {
		c, err := s.Resolve(subagent.Input{Type: kind, Prompt: "x"}, who)
		if err != nil {
			return Caller{}, err
		}
		return c.Caller, nil
	}
	lead, err := start(me, "lead")
	if err != nil || !slices.Equal(lead.Tools, []string{"Read", "Agent"}) {
		t.Fatalf("%q, %v", lead.Tools, err)
	}
	var unknown *subagent.UnknownTypeError
	if _, err := start(lead, "stranger"); !errors.As(err, &unknown) || !slices.Equal(unknown.Known, []string{"helper", "other"}) {
		t.Errorf("a type that was not listed: %v", err)
	}
	helper, err := start(lead, "helper")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(helper, "stranger"); !errors.As(err, &unknown) {
		t.Errorf("a child may start what its parent may not: %v", err)
	}
	other, err := start(helper, "other")
	if err != nil || !slices.Equal(other.Tools, []string{"Agent", "Read"}) || !slices.Equal(other.Spawns, []string{"other"}) {
		t.Errorf("%q, %q, %v", other.Tools, other.Spawns, err)
	}
}

// Whoever starts an agent cannot lift the mode of its definition, and an agent gives no more than its own mode.
func TestChildMode(t *testing.T) {
	for _, tt := range []struct {
		asked        string
		defined      string
		parent, want policy.Mode
	}{
		{"", "plan", policy.AcceptEdits, policy.Plan},
		{"acceptEdits", "plan", policy.AcceptEdits, policy.Plan},
		{"bypassPermissions", "plan", policy.Bypass, policy.Plan},
		{"plan", "", policy.AcceptEdits, policy.Plan},
		{"acceptEdits", "", policy.Default, policy.Default},
		{"", "acceptEdits", policy.DontAsk, policy.DontAsk},
		{"", "", policy.Bypass, policy.Bypass},
	} {
		s, me := known(t, subagent.Definition{Name: "x", Prompt: "x", PermissionMode: tt.defined})
		me.Rules.Mode = tt.parent
		c, err := s.Resolve(subagent.Input{Type: "x", Prompt: "x", PermissionMode: tt.asked}, me)
		if err != nil || c.Rules.Mode != tt.want {
			t.Errorf("asked %q, defined %q, under %s: %s, %v; want %s", tt.asked, tt.defined, tt.parent, c.Rules.Mode, err, tt.want)
		}
	}
}

// Servers that a definition forbids stay forbidden below it, and a child is one level deeper, with neither the task, the
// team nor the settings of the agent that starts it.
func TestChildIsItsOwn(t *testing.T) {
	s, me := known(t, subagent.Definition{Name: "x", Prompt: "x", DisallowedTools: []string{"mcp__db", "Write"}})
	me.ID, me.Depth, me.barred, me.quote = "a00000001", 2, []string{"mcp__mail"}, true
	me.teammate, me.live = &teammate{}, newLive("opus", policy.Plan)
	c, err := s.Resolve(subagent.Input{Type: "x", Prompt: "x"}, me)
	if err != nil {
		t.Fatal(err)
	}
	if c.Depth != 3 || c.parent != me.ID || c.teammate != nil || c.live != nil || c.quote {
		t.Errorf("depth %d, parent %s, teammate %v, live %v, quote %v", c.Depth, c.parent, c.teammate, c.live, c.quote)
	}
	if c.Rules.Mode != policy.Plan || c.Model != "claude-opus-5-5" {
		t.Errorf("mode %s, model %s: it has those of its parent as they are now", c.Rules.Mode, c.Model)
	}
	if !slices.Equal(c.barred, []string{"mcp__mail", "mcp__db"}) || slices.Contains(c.Tools, "Write") {
		t.Errorf("barred %q, tools %q", c.barred, c.Tools)
	}
}

// Where an agent cannot work is said before it is started.
func TestWhere(t *testing.T) {
	refused := func(err error) string {
		var e *control.Error
		if errors.As(err, &e) {
			return string(e.Code)
		}
		return ""
	}
	vendor := &subagent.ACP{Command: "other-agent"}
	for name, c := range map[string]struct {
		def  subagent.Definition
		in   subagent.Input
		want string
	}{
		"worker":           {subagent.Definition{}, subagent.Input{On: "gpu"}, ""},
		"odd name":         {subagent.Definition{}, subagent.Input{On: "../x"}, string(control.Invalid)},
		"vendor elsewhere": {subagent.Definition{ACP: vendor}, subagent.Input{On: "gpu"}, string(control.Invalid)},
		"no worktrees":     {subagent.Definition{}, subagent.Input{Isolation: "worktree"}, string(control.Unavailable)},
		"odd isolation":    {subagent.Definition{}, subagent.Input{Isolation: "vm"}, string(control.Invalid)},
		"untrusted vendor": {subagent.Definition{ACP: &subagent.ACP{}}, subagent.Input{}, string(control.Unavailable)},
	} {
		c.def.Name, c.def.Prompt, c.in.Type, c.in.Prompt = "x", "x", "x", "x"
		s, me := known(t, c.def)
		if child, err := s.Resolve(c.in, me); refused(err) != c.want || c.want == "" && (err != nil || child.on != c.in.On) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// What an agent is told of the end of a task that it starts says what becomes of the task if the agent ends first.
func TestToldOfEnd(t *testing.T) {
	s, _ := known(t)
	for name, c := range map[string]struct {
		rec    task.Record
		events bool
		want   string
	}{
		"background":       {task.Record{Backgrounded: true}, false, ", also after your answer, and go on then; what runs 10m0s after an answer is stopped"},
		"called":           {task.Record{Owner: "s00000001"}, false, ", unless you end before: then it belongs to the agent that started you, which will be told"},
		"called, isolated": {task.Record{Kind: task.LocalAgent, Owner: "s00000001", Worktree: &task.Worktree{}}, false, ", unless you end before: then it is stopped"},
		"stops":            {task.Record{Backgrounded: true, OnEnd: task.Stops}, false, ", unless you end before: then it is stopped"},
		"monitor":          {task.Record{Backgrounded: true}, true, ", unless you end before: then it is stopped"},
	} {
		rt := &Runtime{s: s, Caller: Caller{Host: recorded{rec: c.rec}}}
		if got := rt.unless(c.events); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := (&Runtime{s: s}).unless(false); got != "" {
		t.Errorf("the main agent: %q", got)
	}
	if got := (&Runtime{s: s, Caller: Caller{Host: recorded{}, teammate: &teammate{}}}).unless(false); got != "" {
		t.Errorf("a teammate: %q", got)
	}
}

// recorded is a host of which only the record counts.
type recorded struct {
	task.Host
	rec task.Record
}

func (h recorded) Record() task.Record { return h.rec }
