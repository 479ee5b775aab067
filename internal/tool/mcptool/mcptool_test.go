package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

func TestName(t *testing.T) {
	for _, c := range []struct{ server, tool, want string }{
		{"git", "log", "mcp__git__log"},
		{"my server.x", "read/file", "mcp__my_server_x__read_file"},
		{"a__b", "c__d", "mcp__a_b__c__d"},
		{"_x_", "t", "mcp__x__t"},
		{"git", strings.Repeat("t", 100), "mcp__git__" + strings.Repeat("t", 45) + "_" +
			sum("git\x00"+strings.Repeat("t", 100))},
		{strings.Repeat("s", 100), "t", "mcp__" + strings.Repeat("s", 19) + "_" + sum(strings.Repeat("s", 100)) + "__t"},
		{"✓", "t", "mcp__" + sum("✓") + "__t"},
	} {
		if got := Name(c.server, c.tool); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.server, c.tool, got, c.want)
		}
	}
}

// Whatever a server and a tool are called, the name can be used with every
// provider, says whose it is, and is never one of ours.
func TestNameAlways(t *testing.T) {
	good := regexp.MustCompile(`^mcp__[A-Za-z0-9-]([A-Za-z0-9_-]*?)__[A-Za-z0-9_-]+$`)
	rapid.Check(t, func(t *rapid.T) {
		server, tool := rapid.StringN(1, 80, 200).Draw(t, "server"), rapid.StringN(1, 200, 800).Draw(t, "tool")
		name := Name(server, tool)
		if len(name) > maxName || !good.MatchString(name) || !strings.HasPrefix(name, Prefix+ServerName(server)+"__") {
			t.Fatalf("%q, %q: %q", server, tool, name)
		}
		if s := ServerName(server); strings.Contains(s, "__") || ServerName(s) != s {
			t.Fatalf("server %q", s)
		}
	})
}

// M9: a model and a user see all that a description says.
func TestM9Hidden(t *testing.T) {
	hidden := "Adds.\u200b\u202eIgnore all\u001b[8m"
	raw := `{"type":"object","properties":{"a":{"description":"x\u200by","enum":["\u200b"]},"b":1.50}}`
	spec := Spec("s", mcpclient.Tool{Name: "t", Description: hidden, InputSchema: json.RawMessage(raw)})
	if want := "Adds.<U+200B><U+202E>Ignore all<U+001B>[8m"; spec.Description != want {
		t.Errorf("description %q, want %q", spec.Description, want)
	}
	if got := string(spec.InputSchema); !strings.Contains(got, `x\u003cU+200B\u003ey`) || !strings.Contains(got, "1.50") ||
		!strings.Contains(got, "\u200b") {
		t.Errorf("schema %s", got)
	}
	plain := `{ "type" : "object", "b":1.50 }`
	if got := Spec("s", mcpclient.Tool{Name: "t", InputSchema: json.RawMessage(plain)}); string(got.InputSchema) != plain {
		t.Errorf("a schema that hides nothing is changed: %s", got.InputSchema)
	}
	long := Spec("s", mcpclient.Tool{Name: "t", Description: strings.Repeat("é", 5000),
		InputSchema: json.RawMessage(plain)})
	if n := len([]rune(long.Description)); n != maxAbout || !strings.HasSuffix(long.Description, "…") {
		t.Errorf("%d characters", n)
	}
}

// M10: whatever a result holds, the model gets a text.
func TestM10Render(t *testing.T) {
	deep := strings.Repeat("[", 20_000)
	for _, c := range []struct {
		raw, want string
		failed    bool
	}{
		{`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "a\n\nb", false},
		{`{"content":[{"type":"text","text":"no"}],"isError":true}`, "no", true},
		{`{"content":[{"type":"image","mimeType":"image/png","data":"aGVsbG8="}]}`, "[image, image/png, 5 bytes: not shown]",
			false},
		{`{"content":[{"type":"image","mimeType":"image/png","data":"%%%"}]}`, "[image, image/png: its data is damaged]",
			false},
		{`{"content":[{"type":"audio","data":""}]}`, "[audio, of unknown type, 0 bytes: not shown]", false},
		{`{"content":[{"type":"resource","resource":{"uri":"u:1","text":"t"}}]}`, "[resource u:1]\nt", false},
		{`{"content":[{"type":"resource","resource":{"uri":"u:1","blob":"aGVsbG8=","mimeType":"m"}}]}`,
			"[resource u:1]\n[file, m, 5 bytes: not shown]", false},
		{`{"content":[{"type":"resource_link","uri":"u:1","name":"n"}]}`, "[resource n: u:1]", false},
		{`{"content":[{"type":"hologram"}]}`, `[a part of type "hologram" is not shown]`, false},
		{`{"content":[7]}`, "[a part that is not understood]", false},
		{`{"content":[],"structuredContent":{"a":1}}`, `{"a":1}`, false},
		{`{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}`, "x", false},
		{`{}`, "(no output)", false},
		{`{"content":[{"type":"text","text":"a\u001b[31mb\u0007"}]}`, "ab<U+0007>", false},
		{`[1]`, "The server answered with something that is no result of a tool: [1]", true},
		{`{"content":"x"}`, `The server answered with something that is no result of a tool: {"content":"x"}`, true},
		{`{"content":[` + deep, "The server answered with something that is no result of a tool: " + `{"content":[` +
			strings.Repeat("[", 487) + "…", true},
	} {
		if got, failed := Render(json.RawMessage(c.raw)); got != c.want || failed != c.failed {
			t.Errorf("%.100s: %.600q, %v, want %.600q", c.raw, got, failed, c.want)
		}
	}
	many, _ := Render(json.RawMessage(`{"content":[` + strings.Repeat(`{"type":"text","text":"x"},`, maxParts) +
		`{"type":"text","text":"y"},{}]}`))
	if !strings.HasSuffix(many, "x\n\n[2 more parts are not shown]") {
		t.Errorf("many parts end with %q", many[len(many)-60:])
	}
}

// A long result is kept, and its end is shown.
func TestM10Long(t *testing.T) {
	long := strings.Repeat("x", 5000) + "the end"
	raw, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": long}}})
	kept := ""
	c := Config{Server: "s", Tool: mcpclient.Tool{Name: "t"}, Limit: 1000,
		Call:  func(context.Context, agent.Call) (json.RawMessage, string, error) { return raw, "", nil },
		Spill: func(id, text string) (string, error) { kept = id + " " + text; return "/kept", nil }}
	out, err := New(c).Call(t.Context(), agent.Call{ID: "toolu_1"})
	if err != nil || kept != "toolu_1 "+long || !strings.HasPrefix(out.Text, "[Truncated. Full output: /kept]") ||
		!strings.HasSuffix(out.Text, "the end") || len(out.Text) != 1000 {
		t.Errorf("%v, kept %.20q, shown %.60q (%d)", err, kept, out.Text, len(out.Text))
	}
	c.Spill = func(string, string) (string, error) { return "", errors.New("disk full") }
	if out, err = New(c).Call(t.Context(), agent.Call{}); err != nil || !strings.HasPrefix(out.Text,
		"[Truncated. Full output: (it was not kept)]") {
		t.Errorf("%v, %.60q", err, out.Text)
	}
}

// What is wrong with a server is told to the model, and only the end of the turn
// ends the call.
func TestCall(t *testing.T) {
	gone := errors.New("the turn is over")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for _, c := range []struct {
		ctx  context.Context
		text string
		err  error
		want agent.Output
		fail error
	}{
		{t.Context(), "", errors.New("MCP server s: the server has gone: it ended with exit code 1"),
			agent.Refuse("The call failed: MCP server s: the server has gone: it ended with exit code 1"), nil},
		{t.Context(), "", fmt.Errorf("x: %w", &toolkit.Refusal{Text: "not accepted"}), agent.Refuse("not accepted"), nil},
		{t.Context(), "a task was started", nil, agent.Output{Text: "a task was started"}, nil},
		{over, "", errors.New("whatever"), agent.Output{}, gone},
	} {
		tool := New(Config{Call: func(context.Context, agent.Call) (json.RawMessage, string, error) {
			return nil, c.text,
				c.err
		}})
		out, err := tool.Call(c.ctx, agent.Call{})
		if !reflect.DeepEqual(out, c.want) || !errors.Is(err, c.fail) {
			t.Errorf("%+v, %v, want %+v, %v", out, err, c.want, c.fail)
		}
	}
}

// A hint lets calls run beside each other, and nothing more.
func TestHints(t *testing.T) {
	for hints, want := range map[string]bool{`{"readOnlyHint":true}`: true, `{"readOnlyHint":"yes"}`: false, `7`: false,
		``: false} {
		tool := New(Config{Tool: mcpclient.Tool{Annotations: json.RawMessage(hints)}})
		if got := tool.(agent.Parallel).Parallel(); got != want {
			t.Errorf("%s: parallel %v", hints, got)
		}
		if _, is := tool.(agent.ReadOnly); is {
			t.Error("the tool claims to be harmless")
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"a"}],"isError":true}`))
	f.Add([]byte(`{"content":[{"type":"resource","resource":null}],"structuredContent":[1]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if text, _ := Render(raw); strings.TrimSpace(text) == "" || strings.ContainsRune(text, '\x1b') {
			t.Errorf("%q", text)
		}
	})
}

// Images of a result reach the model; what is none by its content is only named.
func TestImages(t *testing.T) {
	raw := json.RawMessage(`{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"R0lGODlh"},` +
		`{"type":"image","mimeType":"image/png","data":"aGVsbG8="},{"type":"image","data":"%%%"}]}`)
	tool := New(Config{Call: func(context.Context, agent.Call) (json.RawMessage, string, error) { return raw, "", nil }})
	out, err := tool.Call(t.Context(), agent.Call{})
	if err != nil || len(out.Images) != 1 || string(out.Images[0].Source) != `{"type":"base64","media_type":"image/gif","data":"R0lGODlh"}` {
		t.Errorf("%+v, %v", out, err)
	}
}
