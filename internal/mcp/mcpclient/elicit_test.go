package mcpclient

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// What the user leaves out has the value that the server proposes.
func TestElicitationDefaults(t *testing.T) {
	schema := `{"type":"object","properties":{"name":{"type":"string","default":"Ahab"},"n":{"type":"integer","default":3},` +
		`"odd":{"type":"string","default":null},"must":{"type":"string"}}}`
	e, err := ReadElicitation(json.RawMessage(`{"message":"who?","requestedSchema":` + schema + `}`))
	if err != nil || e.Message != "who?" || e.URL != "" {
		t.Fatalf("%+v, %v", e, err)
	}
	for values, want := range map[string]string{
		`{}`:                     `{"action":"accept","content":{"n":3,"name":"Ahab"}}`,
		``:                       `{"action":"accept","content":{"n":3,"name":"Ahab"}}`,
		`{"name":"","must":"x"}`: `{"action":"accept","content":{"must":"x","n":3,"name":""}}`,
	} {
		if got, err := json.Marshal(e.Result(FormAccepted, json.RawMessage(values))); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", values, got, err, want)
		}
	}
	if got, _ := json.Marshal(e.Result(FormDeclined, nil)); string(got) != `{"action":"decline"}` {
		t.Errorf("declined: %s", got)
	}
}

// A question may be an address to visit, and nothing but that.
func TestElicitationURL(t *testing.T) {
	e, err := ReadElicitation(json.RawMessage(`{"mode":"url","message":"sign in","url":"https://x.example/a?b=c","elicitationId":"1"}`))
	if err != nil || !strings.Contains(e.Message, "sign in\nOpen this address of x.example") || !strings.HasSuffix(e.Message, "https://x.example/a?b=c") {
		t.Errorf("%+v, %v", e, err)
	}
	if got, _ := json.Marshal(e.Result(FormAccepted, json.RawMessage(`{}`))); string(got) != `{"action":"accept"}` {
		t.Errorf("accepted: %s", got)
	}
	for _, odd := range []string{`{"mode":"url","url":"file:///etc/passwd"}`, `{"mode":"url","url":"https://x/\u001b[31m"}`, `{"mode":"url"}`,
		`{"mode":"url","url":"https://x/\u202egpj"}`, `{"mode":"dance"}`, `7`} {
		var rpc *RPCError
		if e, err := ReadElicitation(json.RawMessage(odd)); !errors.As(err, &rpc) || rpc.Code != CodeBadParams {
			t.Errorf("%s: %+v, %v", odd, e, err)
		}
	}
}

func TestVisits(t *testing.T) {
	one := `{"mode":"url","message":"m","url":"https://x.example/a"}`
	for data, want := range map[string]int{`{"elicitations":[` + one + `,` + one + `]}`: 2, `{"elicitations":[` + one + `,{"message":"m"}]}`: 0, `7`: 0} {
		if got := Visits(&RPCError{Code: codeOpenURL, Data: json.RawMessage(data)}); len(got) != want {
			t.Errorf("%s: %+v", data, got)
		}
	}
	if got := Visits(&RPCError{Code: CodeInternal, Data: json.RawMessage(`{"elicitations":[` + one + `]}`)}); got != nil {
		t.Errorf("another error: %+v", got)
	}
}

// Servers are told of the folders, and of what else is served here.
func TestRoots(t *testing.T) {
	transports(t, "", func(t *testing.T, s Server) {
		c := live(t, use(t, pool(t, Config{Roots: []string{"/work/a b", "/tmp"}, Samples: true}), s))
		answers := make(chan string, 10)
		defer c.Listen("notifications/answered", func(p json.RawMessage) { answers <- string(p) })()
		text(t, c, "asksroots")
		if s.URL != "" {
			return // the answers go into other requests there
		}
		want := `{"id":"r","result":{"roots":[{"name":"a b","uri":"file:///work/a%20b"},{"name":"tmp","uri":"file:///tmp"}]}}`
		if got := <-answers; got != want {
			t.Errorf("answered %s, want %s", got, want)
		}
		can := text(t, c, "capabilities")
		for _, want := range []string{`"roots":{}`, `"sampling":{}`, `"elicitation":{"form":{},"url":{}}`} {
			if !strings.Contains(can, want) {
				t.Errorf("capabilities %s lack %s", can, want)
			}
		}
	})
}
