package choose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/options"
)

const (
	sonnet = "claude-sonnet-5-5"
	opus   = "claude-opus-5-5"
	haiku  = "claude-haiku-5-5"
)

// prices are figures for tests: opus is dear, haiku cheap.
func prices(name string) (float64, bool) {
	for family, rate := range map[string]float64{"opus": 30, "sonnet": 18, "haiku": 6} {
		if strings.Contains(name, family) {
			return rate, true
		}
	}
	return 0, Free(name)
}

func TestPrecedence(t *testing.T) {
	for _, c := range []struct{ name, input, definition, want string }{
		{"nothing", "", "", sonnet},
		{"definition", "", "haiku", haiku},
		{"definition-inherits", "", "inherit", sonnet},
		{"input", "haiku", "", haiku},
		{"input-over-definition", "opus", "haiku", opus},
		{"input-over-inherit", "opus", "inherit", opus},
		{"input-inherits", "inherit", "", sonnet},
		{"input-inherits-over-definition", " Inherit ", "haiku", sonnet},
		{"blank-input", "  ", "haiku", haiku},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Policy{}.Choose(Request{Input: c.input, Definition: c.definition, Parent: "sonnet"})
			if err != nil || got.Name != c.want || len(got.Notes) > 0 {
				t.Errorf("Choose = %+v, %v; want %s", got, err, c.want)
			}
		})
	}
	if got, err := (Policy{}).Choose(Request{}); err != nil || got.Name != sonnet {
		t.Errorf("with nothing said at all: %+v, %v", got, err)
	}
	if got, err := (Policy{}).Choose(Request{Session: "haiku"}); err != nil || got.Name != haiku {
		t.Errorf("without a parent: %+v, %v; want that of the session", got, err)
	}
}

func TestAliases(t *testing.T) {
	p := Policy{Models: options.Models{Aliases: map[string]string{"opus": "claude-opus-5", "fast": "haiku", "round": "about", "about": "round",
		"own": "openai/gpt-5", "self": "self"}}}
	for asked, want := range map[string]string{
		"sonnet": sonnet, "Haiku": haiku, "opus": "claude-opus-5", "fast": haiku, "own": "openai/gpt-5", "self": "self",
		"claude-3-opus-20240229": "claude-3-opus-20240229", "gpt-5": "gpt-5", "openai/GPT-5": "openai/GPT-5",
		"anthropic/sonnet":         "anthropic/sonnet",
		"script:My File, 1|2.yaml": "script:My File, 1|2.yaml", "replay:x.jsonl": "replay:x.jsonl",
	} {
		if got, err := p.Choose(Request{Input: asked}); err != nil || got.Name != want {
			t.Errorf("%s is %q, %v; want %q", asked, got.Name, err, want)
		}
		if strings.HasPrefix(asked, "script:") {
			if got, _ := p.Choose(Request{Definition: asked}); got.Name != want {
				t.Errorf("as a preference, %s is %q", asked, got.Name)
			}
		}
	}
	if _, err := p.Choose(Request{Input: "round"}); err != nil {
		t.Errorf("aliases in a circle: %v", err)
	}
}

// The words of other programs are models or are refused by name; none is sent as it is.
func TestWords(t *testing.T) {
	p := Policy{Models: options.Models{Aliases: map[string]string{"opus": "claude-opus-4-5", "fast": "haiku"}}}
	for word, want := range map[string]string{"default": sonnet, "best": opus, "sonnet[1m]": sonnet, "fast[1m]": haiku,
		"claude-opus-4-6[1m]": "claude-opus-4-6", "opus": "claude-opus-4-5"} {
		if got, err := p.Choose(Request{Input: word}); err != nil || got.Name != want {
			t.Errorf("%s: %+v, %v; want %s", word, got, err, want)
		}
	}
	for _, word := range []string{"opusplan", "OpusPlan", "opus[1m]", "claude-sonnet-4-5[1m]", "mine[1m]", "sonnet[2m]"} {
		if got, err := p.Choose(Request{Input: word}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %+v, %v; want it refused by name", word, got, err)
		}
	}
}

func TestDisplayed(t *testing.T) {
	for shown, want := range map[string]string{
		"Claude Sonnet 4.5 (copilot)": "claude-sonnet-4-5", "Claude Haiku 4.5 (Preview)": "claude-haiku-4-5",
		"Claude Sonnet 4": "claude-sonnet-4-0", "Claude Opus 4.5": "claude-opus-4-5",
		"Claude Sonnet 4.6": "claude-sonnet-4-6",
		"claude-opus-4.7":   "claude-opus-4-7", "claude-3.5-sonnet": "claude-3-5-sonnet-latest",
		"GPT-4.1": "openai/gpt-4.1", "GPT-5": "openai/gpt-5", "GPT-5.4 mini (copilot)": "openai/gpt-5.4-mini",
		"gpt-4.1": "gpt-4.1",
	} {
		got, err := Policy{}.Choose(Request{Definition: shown, Parent: "opus"})
		if err != nil || got.Name != want {
			t.Errorf("%s is %q, %v; want %q", shown, got.Name, err, want)
		}
	}
	for _, unknown := range []string{"Raptor mini", "Gemini 2.5 Pro (copilot)"} {
		got, err := Policy{}.Choose(Request{Definition: unknown, Parent: "opus"})
		if err != nil || got.Name != opus || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], unknown) {
			t.Errorf("the preference %q gives %+v, %v; want that of the parent, and a note", unknown, got, err)
		}
		var no *UnavailableError
		if _, err := (Policy{}).Choose(Request{Input: unknown}); !errors.As(err, &no) {
			t.Errorf("asked for %q: %v", unknown, err)
		}
	}
}

func TestAvailable(t *testing.T) {
	for _, c := range []struct {
		pattern, asked string
		ok             bool
	}{
		{"sonnet", "sonnet", true},
		{"sonnet", sonnet, true},
		{"sonnet", "Claude Sonnet 5.5", true},
		{"sonnet", "opus", false},
		{sonnet, "sonnet", true},
		{"anthropic/" + sonnet, "sonnet", true},
		{"anthropic/*", "haiku", true},
		{"claude-*", "opus", true},
		{"claude-*", "openai/gpt-5", false},
		{"CLAUDE-*-5-5", "opus", true},
		{"openai/gpt-5", "openai/gpt-5", true},
		{"gpt-5", "openai/gpt-5", true},
		{"gpt-5", "openai/gpt-5-mini", false},
		{"openai/*", "gpt-5", false},
		{"*sonnet*", "openai/anthropic/claude-sonnet-4", true},
		{"quick", "haiku", true}, // an alias of the settings
		{"sonnet", "script:x.yaml", true},
	} {
		p := Policy{Models: options.Models{Available: []string{c.pattern}, Aliases: map[string]string{"quick": "haiku"}}}
		_, err := p.Choose(Request{Input: c.asked})
		if (err == nil) != c.ok {
			t.Errorf("with %q, %q: %v; want it available: %v", c.pattern, c.asked, err, c.ok)
		}
	}
}

// Who asks for what may not be used learns what may (MR-03, ER-05).
func TestUnavailable(t *testing.T) {
	p := Policy{Models: options.Models{Available: []string{"sonnet", "gpt-*", "haiku", "sonnet"}}, Rate: prices}
	_, err := p.Choose(Request{Input: "opus", Definition: "haiku", Parent: "sonnet", Session: "haiku"})
	if want := `model "opus" is not available (available: gpt-*, haiku, sonnet)`; err == nil || err.Error() != want {
		t.Errorf("err = %v\nwant %s", err, want)
	}
	if !slices.Equal(p.Available, []string{"sonnet", "gpt-*", "haiku", "sonnet"}) {
		t.Errorf("the policy was changed: %q", p.Available)
	}
	_, err = Policy{Models: options.Models{Aliases: map[string]string{"fast": "haiku"}}}.Choose(Request{Input: "no such thing"})
	if err == nil || !strings.Contains(err.Error(), "fast, haiku, opus, script:FILE, sonnet") {
		t.Errorf("err = %v; want the aliases", err)
	}
	none := func(string) error { return fmt.Errorf("asked: %w", ErrUnknown) }
	_, err = Policy{Models: options.Models{Aliases: map[string]string{"fast": "haiku"}}, Reachable: none}.Choose(Request{Input: "fats"})
	if want := `model "fats" is not available (did you mean "fast"? available: PROVIDER/NAME, best, default, fast, ` +
		`haiku, opus, script:FILE, sonnet)`; err == nil || err.Error() != want {
		t.Errorf("err = %v\nwant %s", err, want)
	}
	got, err := p.Choose(Request{Parent: "opus", Session: "opus"})
	if err != nil || got.Name != opus {
		t.Errorf("what the parent has already: %+v, %v", got, err)
	}
}

func TestPreference(t *testing.T) {
	noKey := errors.New("OPENAI_API_KEY is not set")
	p := Policy{Models: options.Models{Available: []string{"claude-*", "openai/*"}}, Reachable: func(name string) error {
		if strings.HasPrefix(name, "openai/") {
			return noKey
		}
		return nil
	}}
	for _, c := range []struct {
		definition, want string
		note             bool
	}{
		{"haiku", haiku, false},
		{"GPT-4.1", sonnet, true},
		{"mistral", sonnet, true},
		{"GPT-4.1 | 'gpt-5' | 'Claude Haiku 5.5'", haiku, false},
		{`["GPT-5 (copilot)", "haiku"]`, haiku, false},
		{"GPT-4.1, inherit, haiku", sonnet, false},
		{"GPT-4.1 | mistral", sonnet, true},
		{" | , ", sonnet, false},
	} {
		got, err := p.Choose(Request{Definition: c.definition, Parent: "sonnet"})
		if err != nil || got.Name != c.want || len(got.Notes) > 0 != c.note {
			t.Errorf("a definition that prefers %q: %+v, %v; want %s", c.definition, got, err, c.want)
		}
		if c.note && !strings.Contains(strings.Join(got.Notes, ""), "it uses "+sonnet) {
			t.Errorf("the note does not say what is used: %q", got.Notes)
		}
	}
	if _, err := p.Choose(Request{Input: "openai/gpt-5", Parent: "sonnet"}); !errors.Is(err, noKey) {
		t.Errorf("asked for a model without a key: %v", err)
	}
}

func TestImplied(t *testing.T) {
	on := Policy{Models: options.Models{Explore: "haiku", Complementary: map[string]string{"claude": "openai/gpt-5.4", "gpt": "opus",
		"claude-haiku-*": "sonnet"}}}
	for _, c := range []struct {
		name string
		p    Policy
		r    Request
		want string
	}{
		{"explore", on, Request{AgentType: "explore"}, haiku},
		{"explore-off", Policy{}, Request{AgentType: "explore"}, sonnet},
		{"explore-input", on, Request{AgentType: "explore", Input: "opus"}, opus},
		{"explore-definition", on, Request{AgentType: "explore", Definition: "opus"}, opus},
		{"explore-inherit", on, Request{AgentType: "explore", Definition: "inherit"}, sonnet},
		{"another-type", on, Request{AgentType: "plan"}, sonnet},
		{"duck", on, Request{AgentType: "rubber-duck"}, "openai/gpt-5.4"},
		{"duck-of-gpt", on, Request{AgentType: "rubber-duck", Parent: "openai/gpt-5"}, opus},
		{"duck-by-pattern", on, Request{AgentType: "rubber-duck", Parent: "haiku"}, sonnet},
		{"duck-of-another", on, Request{AgentType: "rubber-duck", Parent: "openai/llama"}, "openai/llama"},
		{"duck-off", Policy{}, Request{AgentType: "rubber-duck"}, sonnet},
		{"duck-input", on, Request{AgentType: "rubber-duck", Input: "haiku"}, haiku},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.r.Parent == "" {
				c.r.Parent = "sonnet"
			}
			got, err := c.p.Choose(c.r)
			if err != nil || got.Name != c.want {
				t.Errorf("Choose = %+v, %v; want %s", got, err, c.want)
			}
		})
	}
	on.Available = []string{"sonnet"}
	if got, err := on.Choose(Request{AgentType: "explore", Parent: "sonnet"}); err != nil || got.Name != sonnet ||
		len(got.Notes) != 1 {
		t.Errorf("a model of the settings that is not available: %+v, %v", got, err)
	}
}

func TestCostGuard(t *testing.T) {
	for _, c := range []struct {
		name, input, session string
		p                    Policy
		want                 string
		note                 string
	}{
		{"dearer", "opus", "sonnet", Policy{Rate: prices}, sonnet, "it costs more"},
		{"cheaper", "haiku", "sonnet", Policy{Rate: prices}, haiku, ""},
		{"same", "sonnet", sonnet, Policy{Rate: prices}, sonnet, ""},
		{"equal-price", "anthropic/" + sonnet, "sonnet", Policy{Rate: prices}, "anthropic/" + sonnet, ""},
		{"off", "opus", "sonnet", Policy{Models: options.Models{CostGuard: "off"}, Rate: prices}, opus, ""},
		{"no-session", "opus", "", Policy{Rate: prices}, opus, ""},
		{"free-session", "haiku", "script:x.yaml", Policy{Rate: prices}, "script:x.yaml", "it costs more"},
		{"free-child", "script:x.yaml", "sonnet", Policy{Rate: prices}, "script:x.yaml", ""},
		{"free-child-of-unknown", "script:x.yaml", "openai/llama", Policy{}, "script:x.yaml", ""},
		{"unknown", "openai/llama", "sonnet", Policy{Rate: prices}, "openai/llama", "cannot be compared"},
		{"multipliers-first", "haiku", "sonnet", Policy{Models: options.Models{Multipliers: map[string]float64{"haiku": 3,
			"claude-*": 2}}, Rate: prices}, sonnet, "it costs more"},
		{"multipliers-alias", "opus", "sonnet", Policy{Models: options.Models{Multipliers: map[string]float64{"opus": 1, "sonnet": 1}}, Rate: prices},
			opus, ""},
		{"one-multiplier", "opus", "haiku", Policy{Models: options.Models{Multipliers: map[string]float64{"opus": 0.1}}, Rate: prices}, haiku,
			"it costs more"},
		{"nonsense-multiplier", "opus", "haiku", Policy{Models: options.Models{Multipliers: map[string]float64{"opus": -1,
			"haiku": 1}}, Rate: prices}, haiku, "it costs more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.p.Choose(Request{Input: c.input, Parent: "sonnet", Session: c.session})
			if err != nil || got.Name != c.want {
				t.Fatalf("Choose = %+v, %v; want %s", got, err, c.want)
			}
			if notes := strings.Join(got.Notes, "\n"); (notes == "") != (c.note == "") || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q; want %q", notes, c.note)
			}
			if replaced := got.From != ""; replaced != (c.note == "it costs more") {
				t.Errorf("From = %q", got.From)
			}
		})
	}
}

// The guard comes last: it also binds what no call asked for, and what is
// refused is refused, not replaced (CG-02, C-39).
func TestOrder(t *testing.T) {
	p := Policy{Models: options.Models{Available: []string{"sonnet", "haiku"}}, Rate: prices}
	if got, err := p.Choose(Request{Input: "opus", Session: "sonnet"}); err == nil {
		t.Errorf("a model that is not available was replaced: %+v", got)
	}
	for name, r := range map[string]Request{
		"definition": {Definition: "opus", Parent: "haiku", Session: "haiku"},
		"parent":     {Parent: "opus", Session: "haiku"},
		"explore":    {AgentType: "explore", Parent: "haiku", Session: "haiku"},
	} {
		got, err := Policy{Models: options.Models{Explore: "opus"}, Rate: prices}.Choose(r)
		if err != nil || got.Name != haiku || got.From != opus || len(got.Notes) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "A", true}, {"a", "ab", false}, {"", "", true}, {"", "a", false}, {"*", "", true},
		{"*", "a/b", true},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"a*a", "a", false}, {"a*a", "aa", true},
		{"a**b", "axb", true},
		{"a*b*c", "a-b-b-c", true}, {"a*b*c", "a-c-b", false}, {"a*bc*c", "abc", false}, {"[a]", "a", false},
		{"?", "a", false},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}

func TestBest(t *testing.T) {
	values := map[string]int{"*": 1, "claude-*": 2, "claude-opus-*": 3, "claude-opus-5": 4, "claude-opus-5*": 5,
		"openai/*": 6}
	for name, want := range map[string]int{"x": 1, "claude-x": 2, "claude-opus-4": 3, "claude-opus-5": 4,
		"claude-opus-5-5": 5, "openai/x": 6} {
		if got, ok := Best(values, name); !ok || got != want {
			t.Errorf("%s: %d, %v; want %d", name, got, ok, want)
		}
	}
	if _, ok := Best(map[string]int{"a": 1}, "b"); ok {
		t.Error("something was found for what no key covers")
	}
}

// Whatever stands in files and settings, a choice never is outside of what may
// be used, save for what the parent or the session has.
func TestNeverOutside(t *testing.T) {
	name := rapid.SampledFrom([]string{"", "inherit", "sonnet", "opus", "haiku", "GPT-5", "openai/x", "a | b", "x y",
		"round", "*", "fast"})
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Models: options.Models{Available: []string{"haiku", "openai/gpt-*"}, Aliases: map[string]string{"fast": "haiku",
			"round": "round"}, Explore: name.Draw(t, "explore")}, Rate: prices}
		r := Request{Input: name.Draw(t, "input"), Definition: name.Draw(t, "definition"), Parent: "sonnet",
			Session:   "sonnet",
			AgentType: rapid.SampledFrom([]string{"explore", "rubber-duck", "plan"}).Draw(t, "type")}
		c, err := p.Choose(r)
		if err == nil && !slices.Contains([]string{sonnet, haiku, "openai/gpt-5"}, c.Name) {
			t.Fatalf("%+v gives %q", r, c.Name)
		}
	})
}
