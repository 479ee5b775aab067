package toolkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type input struct {
	Path  string `json:"path" input:"filled"`
	Body  string `json:"body"`
	Count *int   `json:"count,omitempty" input:"minimum=0,maximum=600000,default=3"`
	Loud  bool   `json:"loud,omitempty"`
}

func TestDecode(t *testing.T) {
	got, err := Decode[input](json.RawMessage(` {"path":"p","body":"","count":3,"loud":true} `))
	if err != nil || got.Path != "p" || got.Count == nil || *got.Count != 3 || !got.Loud {
		t.Fatalf("Decode = %+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	deep := `{"path":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`
	for _, c := range []struct{ name, in, want string }{
		{"empty", ``, "the input is not a JSON object"},
		{"null", `null`, "the input is not a JSON object"},
		{"array", `[1]`, "the input is not a JSON object"},
		{"text", `"x"`, "the input is not a JSON object"},
		{"invalid", `{"path":}`, `the input is not valid JSON: at field "path"`},
		{"cut", `{"path":"p"`, "the input is not valid JSON: it is cut off"},
		{"trailing", `{"path":"p","body":""} {}`, "the input is not valid JSON: something follows the object"},
		{"unknown", `{"path":"p","body":"","x":1}`, `unknown field "x"; the fields are body, count, loud, path`},
		{"case", `{"Path":"p","body":""}`, `unknown field "Path"; the fields are body, count, loud, path`},
		{"twice", `{"path":"p","path":"q","body":""}`, `field "path" is given twice`},
		{"missing", `{"path":"p"}`, `field "body" is missing`},
		{"blank", `{"path":" ","body":""}`, `field "path" is empty`},
		{"type", `{"path":1,"body":""}`, `field "path" must be a string, not 1`},
		{"nullfield", `{"path":"p","body":"","count":null}`, `field "count" must be a whole number, not null`},
		{"fraction", `{"path":"p","body":"","count":1.5}`, `field "count" must be a whole number, not 1.5`},
		{"huge", `{"path":"p","body":"","count":1e99}`, `field "count" must be a whole number, not 1e99`},
		{"truth", `{"path":"p","body":"","loud":"yes"}`, `field "loud" must be true or false, not a string`},
		{"deep", deep, `the input is not valid JSON: at field "path"`},
		{"large", `{"path":"` + strings.Repeat("a", MaxBytes) + `"}`, "more than the 10485760 that are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode[input](json.RawMessage(c.in))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

type rich struct {
	Mode   string            `json:"mode,omitempty" jsonschema:"How" input:"enum=fast|slow"`
	Must   string            `json:"must" input:"enum=a|b|c"`
	Since  int               `json:"since,omitempty" input:"minimum=-1"`
	Most   int               `json:"most,omitempty" input:"maximum=9"`
	Tags   []string          `json:"tags,omitempty"`
	Params map[string]string `json:"params,omitempty"`
	Parts  []part            `json:"parts,omitempty" input:"minItems=1,maxItems=2"`
	Part   *part             `json:"part,omitempty"`
}

type part struct {
	Label string `json:"label" input:"filled"`
}

// What the schema says is what is held against the input.
func TestRules(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"enum", `"mode":"warp"`, `field "mode" must be fast or slow, not "warp"`},
		{"enumempty", `"mode":""`, ``},
		{"enumrequired", `"must":""`, `field "must" must be a, b or c, not ""`},
		{"from", `"since":-2`, `field "since" must be from -1 on, not -2`},
		{"most", `"most":10`, `field "most" must be at most 9, not 10`},
		{"list", `"tags":"x"`, `field "tags" must be a list, not a string`},
		{"item", `"tags":["x",1]`, `tag 2 must be a string, not 1`},
		{"nullitem", `"tags":[null]`, `tag 1 must be a string, not null`},
		{"map", `"params":{"a":1}`, `field "params" must be an object of strings, not an object`},
		{"few", `"parts":[]`, `field "parts" must have 1 to 2 items, not 0`},
		{"many", `"parts":[{},{},{}]`, `field "parts" must have 1 to 2 items, not 3`},
		{"nested", `"parts":[{"label":"x"},{"label":" "}]`, `part 2: field "label" is empty`},
		{"noobject", `"parts":["x"]`, `part 1: the input is not a JSON object`},
		{"inner", `"part":{"label":"x","more":1}`, `field "part": unknown field "more"; the fields are label`},
		{"fits", `"mode":"fast","since":-1,"most":9,"tags":["x"],"params":{"a":"b"},"parts":[{"label":"x"}],"part":{` +
			`"label":"y"}`, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := c.in
			if !strings.Contains(in, `"must"`) {
				in = `"must":"a",` + in
			}
			got, err := Decode[rich](json.RawMessage("{" + in + "}"))
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if c.name == "fits" && (got.Part.Label != "y" || got.Parts[0].Label != "x" || got.Tags[0] != "x" ||
				got.Params["a"] != "b") {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, 0: true, 600_000: true, 600_001: false} {
		_, err := Decode[input](fmt.Appendf(nil, `{"path":"p","body":"","count":%d}`, n))
		if (err == nil) != ok || err != nil && err.Error() != fmt.Sprintf(`field "count" must be from 0 to 600000, not %d`,
			n) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// A tag that says nothing is found when the tool is made, and not by a model.
func TestBadTag(t *testing.T) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, `no rule of input is called "least"`) {
			t.Errorf("%s", said)
		}
	}()
	New(Tool[struct {
		N int `json:"n" input:"least=1"`
	}]{Name: "T"}).Spec()
}

// A refusal is a result that begins with the name of the tool and shows what it
// holds; another error ends the turn.
func TestCall(t *testing.T) {
	broken := errors.New("no disk")
	for _, c := range []struct {
		name, in, text string
		err            error
		ends           error
	}{
		{"done", `{"path":"p","body":""}`, "done", nil, nil},
		{"input", `{"body":""}`, `T: field "path" is missing`, nil, nil},
		{"refused", `{"path":"p","body":""}`, "T: not here <U+200B>", fmt.Errorf("deep: %w",
			Refusef("not here %s", "\u200b")), nil},
		{"broken", `{"path":"p","body":""}`, "", broken, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool := New(Tool[input]{Name: "T", Aliases: []string{"t"}, Parallel: true,
				Call: func(_ context.Context, call agent.Call, in input) (agent.Output, error) {
					if call.ID != "toolu_1" || in.Path != "p" {
						t.Errorf("%+v, %+v", call, in)
					}
					return agent.Output{Text: "done", Structured: 7}, c.err
				}})
			out, err := tool.Call(t.Context(), agent.Call{ID: "toolu_1", Input: json.RawMessage(c.in)})
			if !errors.Is(err, c.ends) {
				t.Fatalf("error %v", err)
			}
			if err == nil && (out.Text != c.text || out.IsError != (c.name != "done")) || c.name == "refused" &&
				out.Structured != 7 {
				t.Errorf("%+v", out)
			}
			if !tool.(agent.Parallel).Parallel() || tool.(agent.ReadOnly).ReadOnly() ||
				len(tool.(agent.Aliased).Aliases()) != 1 {
				t.Error("the traits are not those that were declared")
			}
		})
	}
}

func TestRefuseIn(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var refused *Refusal
	if err := RefuseIn(ctx, io.EOF); !errors.As(err, &refused) || RefuseIn(ctx, nil) != nil {
		t.Errorf("%v", err)
	}
	cancel(io.ErrClosedPipe)
	if err := RefuseIn(ctx, io.EOF); err != io.ErrClosedPipe || RefuseIn(ctx, nil) != nil {
		t.Errorf("%v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `{"path":"p","body":"b"}`, `null`, `{"a":{"b":[1,null]}}`, `{"path":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := Decode[input](raw)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
				t.Fatalf("not one short line: %q", err)
			}
			return
		}
		if !json.Valid(raw) || strings.TrimSpace(got.Path) == "" {
			t.Fatalf("accepted %q as %+v", raw, got)
		}
	})
}
