package strict

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type input struct {
	Path  string `json:"path" strict:"filled"`
	Body  string `json:"body" strict:"required"`
	Count *int   `json:"count"`
	Loud  bool   `json:"loud"`
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
		{"invalid", `{"path":}`, `the input is not valid JSON at field "path"`},
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
		{"deep", deep, `the input is not valid JSON at field "path"`},
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

func TestWithin(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, 0: true, 600_000: true, 600_001: false} {
		if err := Within("timeout", n, 0, 600_000); (err == nil) != ok {
			t.Errorf("Within(%d) = %v", n, err)
		}
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
