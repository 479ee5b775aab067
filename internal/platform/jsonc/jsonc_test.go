package jsonc

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		`{"a":1}`:                    `{"a":1}`,
		"\xef\xbb\xbf{}":             "   {}",
		"{// c \"x\"\n\"a\":1}":      "{        \n\"a\":1}",
		"{/* a\n } */\"a\":[1,2,],}": "{    \n     \"a\":[1,2 ] }",
		`{"a":"// no, /* no */ ,]"}`: `{"a":"// no, /* no */ ,]"}`,
		`{"a":"\"// no\\"} // yes`:   `{"a":"\"// no\\"}       `,
		"{\"a\":1, // last\n}":       "{\"a\":1         \n}",
		`[1,,]`:                      `[1, ]`,
		`/* open`:                    `/* open`,
		`{"a`:                        `{"a`,
	} {
		if got := string(Plain([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// JSON stays as it is, and no byte moves.
func FuzzPlain(f *testing.F) {
	for _, text := range []string{`{"a":"/*",}`, "[1,//\n]", `"\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := Plain(data)
		if len(got) != len(data) || json.Valid(data) && !bytes.Equal(got, data) || bytes.Count(got, []byte("\n")) != bytes.Count(data, []byte("\n")) {
			t.Errorf("%q became %q", data, got)
		}
	})
}

func TestMembers(t *testing.T) {
	for text, want := range map[string]string{
		`{"b":1,"a":[2],"b":"<"}`: `{"b":1,"a":[2],"b":"<"}`,
		" {} ":                    "{}",
		"":                        ErrNotObject.Error(),
		"[]":                      ErrNotObject.Error(),
		"null":                    ErrNotObject.Error(),
		"x":                       ErrNotObject.Error(),
		`{"a":1`:                  "it is cut off",
		`{"a":1} 2`:               "something follows the object",
		`{"a":}`:                  `at field "a": invalid character '}' looking for beginning of value`,
	} {
		got := ""
		if o, err := Members([]byte(text)); err != nil {
			got = err.Error()
		} else if raw, err := o.Text(); err != nil {
			t.Fatal(err)
		} else {
			got = string(raw)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
