package subagent

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestBuiltin(t *testing.T) {
	c := Builtin()
	if got := c.Names(); !slices.Equal(got, []string{"code-review", "explore", "general-purpose", "plan", "rem-agent", "research", "rubber-duck", "task", "verification"}) {
		t.Errorf("names %v", got)
	}
	for _, d := range c.All() {
		if d.Description == "" || len(d.Prompt) < 200 {
			t.Errorf("%s has no description or hardly a prompt", d.Name)
		}
	}
	for _, spelled := range []string{"Explore", "EXPLORE", "explore"} {
		if d, err := c.Find(spelled); err != nil || d.Name != "explore" {
			t.Errorf("Find(%q) = %q, %v", spelled, d.Name, err)
		}
	}
	if d, err := c.Find(""); err != nil || d.Name != DefaultType || d.Tools != nil {
		t.Errorf("the default is %q with tools %v, %v", d.Name, d.Tools, err)
	}
	if d, _ := c.Find("plan"); d.Tools == nil || len(d.Tools) != 0 {
		t.Errorf("plan must have no tools, and not those of its parent: %v", d.Tools)
	}
	_, err := c.Find("nobody")
	var unknown *UnknownTypeError
	if !errors.As(err, &unknown) || !strings.HasPrefix(err.Error(), "unknown subagent_type: nobody") || !strings.Contains(err.Error(), "explore") {
		t.Errorf("unknown type: %v", err)
	}
}

func TestCheck(t *testing.T) {
	d := New(nil)
	for input, ok := range map[string]bool{
		`{"agent_type":"explore","prompt":"look"}`: true,
		`{"agent_type":"explore","prompt":" "}`:    false,
		`{"prompt":"x","max_turns":-1}`:            false,
		`[]`:                                       false,
		``:                                         false,
	} {
		if err := d.Check([]byte(input)); (err == nil) != ok {
			t.Errorf("Check(%s) = %v", input, err)
		}
	}
}
