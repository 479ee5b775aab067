package choose

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/options"
)

// Inherit is the name that means the model of the parent, in requests and definitions.
const Inherit = "inherit"

// Default is the meaning of an empty name at the top of a session.
const Default = modelinfo.Default

// Policy says which models may be used. The zero Policy allows all models; its cost guard passes
// models that it cannot compare. A Policy is only read, so several goroutines may use one.
type Policy struct {
	options.Models

	// Own are the exact names of models that the program brings. They are available
	// whatever Available holds, and none of them is an alias of another model.
	Own []string

	// Reachable returns why a name cannot be used here, for example for lack of a
	// key; the error is [ErrUnknown] for a name that no provider has. It is called
	// last. nil: every name can be used.
	Reachable func(name string) error

	// Rate returns a figure that grows with the price of a model, false if the price is unknown. The
	// cost guard compares by it if one of two models has no multiplier.
	Rate func(name string) (float64, bool)
}

// Request describes the agent that needs a model. The names may be aliases.
type Request struct {
	Input      string // of the call that starts the agent; empty: not given
	Definition string // of its definition: a name, or several with | or a comma between; empty: not given
	Parent     string // of the agent that asks; empty: the model of the session
	Session    string // of the main agent; empty: not chosen yet, so no cost limit
	AgentType  string // normalized, such as rubber-duck
}

// Choice is the model that an agent gets.
type Choice struct {
	Name  string   // full, as a finder of models takes it
	Notes []string // one line each, for the user and for the model that asked
	From  string   // the model that the cost guard replaced; empty: it did not
}

// ErrUnknown is in the error of [Policy.Reachable] for a name that no provider has.
var ErrUnknown = errors.New("no provider has such a model")

// UnavailableError says that a requested model may not be used, or does not exist.
type UnavailableError struct {
	Model     string
	Near      string   // a similar name; empty: none is similar
	Available []string // sorted
}

func (e *UnavailableError) Error() string {
	meant := ""
	if e.Near != "" {
		meant = fmt.Sprintf("did you mean %q? ", e.Near)
	}
	return fmt.Sprintf("model %q is not available (%savailable: %s)", e.Model, meant, strings.Join(e.Available, ", "))
}

// Choose picks the model. A name in the call counts first and must be usable:
// else the error is an [*UnavailableError], or the error of Reachable. Then comes
// the definition, which is a preference: if it cannot be met, the agent gets the
// parent's model and a note. Then the policy's model for the type of agent, then the
// parent. At the end the cost guard may replace it by the session's.
func (p Policy) Choose(r Request) (Choice, error) {
	c := Choice{}
	parent := p.full(first(r.Parent, r.Session, Default))
	input, wishes := named(r.Input), alternatives(r.Definition)
	switch {
	case input == Inherit:
		c.Name = parent
	case input != "":
		name, err := p.usable(input)
		if err != nil {
			return Choice{}, err
		}
		c.Name = name
	case len(wishes) > 0:
		c.Name, c.Notes = p.prefer(wishes, parent)
	default:
		c.Name, c.Notes = p.prefer(alternatives(p.implied(r.AgentType, parent)), parent)
	}
	return p.guard(c, r.Session), nil
}

// prefer takes the first wish that can be met, else the model of the parent.
func (p Policy) prefer(wishes []string, parent string) (string, []string) {
	for _, w := range wishes {
		if w == Inherit {
			return parent, nil
		}
		if name, err := p.usable(w); err == nil {
			return name, nil
		}
	}
	if len(wishes) == 0 {
		return parent, nil
	}
	return parent, []string{fmt.Sprintf("the agent prefers %s, which is not available here; it uses %s",
		strings.Join(quoted(wishes), " or "), parent)}
}

// implied returns the model of a type of agent without a named one.
func (p Policy) implied(agentType, parent string) string {
	switch agentType {
	case "explore":
		return p.Explore
	case "rubber-duck":
		model, ok := Best(p.Complementary, p.names(parent)...)
		if !ok {
			model, _ = Best(p.Complementary, family(parent))
		}
		return model
	}
	return ""
}

// usable returns the full name of a model that may be used and can be reached.
func (p Policy) usable(name string) (string, error) {
	full, ok := p.expand(name)
	if err := modelinfo.Refused(name); err != nil && (!ok || full == name) {
		return "", fmt.Errorf("model %q: %w", name, err)
	}
	if !ok || !p.available(name, full) {
		return "", &UnavailableError{Model: name, Available: p.list()}
	}
	if p.Reachable != nil {
		err := p.Reachable(full)
		if errors.Is(err, ErrUnknown) {
			near := modelinfo.Nearest(name, slices.Collect(maps.Keys(p.Aliases))...)
			return "", &UnavailableError{Model: name, Near: near, Available: p.list()}
		}
		if err != nil {
			return "", fmt.Errorf("model %q: %w", name, err)
		}
	}
	return full, nil
}

func (p Policy) available(asked, full string) bool {
	if len(p.Available) == 0 || Free(full) || slices.Contains(p.Own, full) {
		return true
	}
	names := append(p.names(full), asked)
	return slices.ContainsFunc(p.Available, func(pattern string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return Match(pattern, n) })
	})
}

// anyName represents the names of models that are in no table.
const anyName = "PROVIDER/NAME"

// Names returns the names that can be asked for, without patterns.
func (p Policy) Names() []string {
	return slices.DeleteFunc(p.list(), func(name string) bool {
		return strings.ContainsAny(name, "*:") || name == anyName
	})
}

// list returns the names that the user may choose from, for an error.
func (p Policy) list() []string {
	names := slices.Concat(p.Available, p.Own)
	if len(p.Available) == 0 {
		names = append(slices.Collect(maps.Keys(p.Aliases)), anyName, "script:FILE")
		for _, a := range modelinfo.Aliases() {
			names = append(names, a.Short)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// guard gives the session's model to an agent whose own would cost more.
func (p Policy) guard(c Choice, session string) Choice {
	if p.CostGuard == "off" || session == "" {
		return c
	}
	limit := p.full(session)
	if c.Name == limit {
		return c
	}
	dearer, known := p.dearer(c.Name, limit)
	switch {
	case !known:
		c.Notes = append(c.Notes, fmt.Sprintf("the cost guard lets %s pass: it cannot be compared with %s of the session "+
			"(set models.prices or models.multipliers)", c.Name, limit))
	case dearer:
		c.Notes = append(c.Notes, fmt.Sprintf("the cost guard replaced %s: it costs more than %s of the session, which is "+
			"used (setting models.costGuard)", c.Name, limit))
		c.Name, c.From = limit, c.Name
	}
	return c
}

// dearer compares two models by the same measure; known is false without a measure
// that both have.
func (p Policy) dearer(name, than string) (dearer, known bool) {
	for _, measure := range []func(string) (float64, bool){p.multiplier, p.rate} {
		a, have := measure(name)
		if b, both := measure(than); have && both {
			return a > b, true
		}
	}
	return false, Free(name)
}

func (p Policy) multiplier(name string) (float64, bool) {
	m, ok := Best(p.Multipliers, p.names(name)...)
	return m, ok && m >= 0
}

func (p Policy) rate(name string) (float64, bool) {
	if p.Rate == nil {
		return 0, false
	}
	return p.Rate(name)
}

// named returns a trimmed name, and inherit for it in any case of letters.
func named(s string) string {
	s = strings.TrimSpace(s)
	if strings.EqualFold(s, Inherit) {
		return Inherit
	}
	return s
}

// alternatives returns the names of a preference, the preferred one first. A name of
// a file may have separators in it.
func alternatives(s string) []string {
	if s = named(s); Free(s) {
		return []string{s}
	}
	var out []string
	for _, part := range strings.FieldsFunc(strings.Trim(s, "[]"), func(r rune) bool { return r == '|' || r == ',' }) {
		if n := named(strings.Trim(strings.TrimSpace(part), `'"`)); n != "" {
			out = append(out, n)
		}
	}
	return out
}

func first(names ...string) string {
	for _, n := range names {
		if n = named(n); n != "" && n != Inherit {
			return n
		}
	}
	return ""
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return out
}
