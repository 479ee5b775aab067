// Package telemetry reads what the program sends to a collector, strictly, with the messages of OTLP. It is a module of
// its own, so that Drover does not depend on Protocol Buffers.
package telemetry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
)

var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "telemetry")
	if err == nil {
		program = filepath.Join(dir, "drover")
		err = harness.Build(program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func newPlace(t *testing.T) *harness.Place {
	t.Helper()
	p := harness.New(t, program)
	t.Cleanup(func() { p.End(harness.Patience) })
	return p
}

// collector receives OTLP over HTTP.
type collector struct {
	t   *testing.T
	URL string

	mu      sync.Mutex
	spans   []*tracepb.Span
	all     bytes.Buffer
	headers http.Header
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	c.URL = srv.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Write(body)
	c.headers = r.Header
	read := func(m proto.Message) {
		body := ids.ReplaceAllFunc(body, func(pair []byte) []byte {
			part := ids.FindSubmatch(pair)
			id, err := hex.DecodeString(string(part[2]))
			if err != nil || len(id) != 8 && len(id) != 16 {
				c.t.Errorf("%s is no ID", pair)
			}
			return fmt.Appendf(nil, "%s%q", part[1], base64.StdEncoding.EncodeToString(id))
		})
		if err := protojson.Unmarshal(body, m); err != nil {
			c.t.Errorf("%s: %v\n%.2000s", r.URL.Path, err, body)
		}
	}
	switch r.URL.Path {
	case "/v1/traces":
		var in tracepb.TracesData
		read(&in)
		for _, r := range in.GetResourceSpans() {
			for _, s := range r.GetScopeSpans() {
				c.spans = append(c.spans, s.GetSpans()...)
			}
		}
	default:
		c.t.Errorf("a request for %s", r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// ids are hexadecimal in OTLP; elsewhere JSON has bytes in base64.
var ids = regexp.MustCompile(`("(?:traceId|spanId|parentSpanId)":)"([^"]*)"`)

// paths are the names of the spans, each with those above it.
func (c *collector) paths() (out []string) {
	byID := map[string]*tracepb.Span{}
	for _, s := range c.spans {
		byID[string(s.GetSpanId())] = s
	}
	for _, s := range c.spans {
		path := s.GetName()
		for up := byID[string(s.GetParentSpanId())]; up != nil; up = byID[string(up.GetParentSpanId())] {
			path = up.GetName() + " > " + path
			if !bytes.Equal(up.GetTraceId(), s.GetTraceId()) {
				c.t.Errorf("%s is of another trace than %s", s.GetName(), up.GetName())
			}
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

func attribute(in []*commonpb.KeyValue, key string) string {
	for _, a := range in {
		if a.GetKey() == key {
			return strings.TrimPrefix(fmt.Sprint(a.GetValue()), "string_value:")
		}
	}
	return ""
}

type input = map[string]any

// anything lets every call through.
const anything = "--permission-mode=bypassPermissions"

// turnOf counts the replies that a request contains.
func turnOf(r *modeltest.Request) (n int) {
	p, err := r.Params()
	if err != nil {
		return 0
	}
	for _, m := range p.Messages {
		if m.Role() == agent.Assistant {
			n++
		}
	}
	return n
}

// models answers the requests of a place.
func models(p *harness.Place, answer func(r *modeltest.Request) modeltest.Answer) {
	p.Helper()
	m, err := modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer { return answer(r) })
	p.Must(err)
	p.Cleanup(m.Close)
	p.Env = append(p.Env, "ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=sk-test")
}

// traced runs a prompt whose agent calls a command and an agent, which calls a command.
func traced(p *harness.Place, args ...string) *harness.Call {
	p.Helper()
	models(p, func(r *modeltest.Request) modeltest.Answer {
		a := modeltest.Text("ANSWERTEXT")
		switch turn := turnOf(r); {
		case r.Agent() == "main" && turn == 0:
			a = modeltest.Call("Bash", input{"command": "echo COMMANDTEXT"})
		case r.Agent() == "main" && turn == 1:
			a = modeltest.Call("Agent", input{"subagent_type": "general-purpose", "prompt": "SUBPROMPT",
				"description": "SUBPROMPT"})
		case turn == 0:
			a = modeltest.Call("Bash", input{"command": "echo BELOW; exit 3"})
		}
		a.Usage = agent.Usage{InputTokens: 10, OutputTokens: 20, CacheReadTokens: 300, CacheWriteTokens: 4000}
		return a
	})
	r := p.Run(append([]string{"-p", "PROMPTTEXT", anything, "--model=claude-sonnet-4-5-20250929"}, args...)...)
	if r.Code() != 0 {
		p.Fatal(r)
	}
	return r
}

// TestTelemetry: the variables of OpenTelemetry make a session send traces, without content.
func TestTelemetry(t *testing.T) {
	p, c := newPlace(t), newCollector(t)
	p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20b",
		"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	traced(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	want := []string{
		"drover.session",
		"drover.session > invoke_agent main",
		"drover.session > invoke_agent main > chat claude-sonnet-4-5-20250929",
		"drover.session > invoke_agent main > chat claude-sonnet-4-5-20250929",
		"drover.session > invoke_agent main > chat claude-sonnet-4-5-20250929",
		"drover.session > invoke_agent main > execute_tool Agent",
		"drover.session > invoke_agent main > execute_tool Agent > task local_agent",
		"drover.session > invoke_agent main > execute_tool Agent > task local_agent > invoke_agent general-purpose",
		"drover.session > invoke_agent main > execute_tool Agent > task local_agent > invoke_agent general-purpose > " +
			"chat claude-sonnet-4-5-20250929",
		"drover.session > invoke_agent main > execute_tool Agent > task local_agent > invoke_agent general-purpose > " +
			"chat claude-sonnet-4-5-20250929",
		"drover.session > invoke_agent main > execute_tool Agent > task local_agent > invoke_agent general-purpose > " +
			"execute_tool Bash",
		"drover.session > invoke_agent main > execute_tool Agent > task local_agent > invoke_agent general-purpose > " +
			"execute_tool Bash > task local_bash",
		"drover.session > invoke_agent main > execute_tool Bash",
		"drover.session > invoke_agent main > execute_tool Bash > task local_bash",
	}
	if got := c.paths(); !slices.Equal(got, want) {
		t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range c.spans {
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() || s.GetStartTimeUnixNano() == 0 {
			t.Errorf("%s goes from %d to %d", s.GetName(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
		}
		in := s.GetAttributes()
		switch {
		case s.GetName() == "drover.session":
			if fmt.Sprintf("%x", s.GetTraceId()) != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("the trace is %x, not that of TRACEPARENT", s.GetTraceId())
			}
		case strings.HasPrefix(s.GetName(), "chat "):
			if s.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || attribute(in, "gen_ai.provider.name") != `"anthropic"` ||
				attribute(in, "gen_ai.operation.name") != `"chat"` ||
				attribute(in, "gen_ai.usage.input_tokens") != "int_value:4310" ||
				attribute(in, "gen_ai.response.id") == "" || attribute(in, "drover.cost_usd") == "" {
				t.Errorf("%s has %v", s.GetName(), in)
			}
		case s.GetName() == "task local_bash" && attribute(in, "process.exit.code") == "int_value:3":
			if s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
				t.Errorf("the command that failed has the status %v", s.GetStatus())
			}
		}
	}
	for _, text := range []string{"PROMPTTEXT", "COMMANDTEXT", "SUBPROMPT", "ANSWERTEXT", "sk-test", p.Dir} {
		if strings.Contains(c.all.String(), text) {
			t.Errorf("%s was sent", text)
		}
	}
	if got := c.headers.Get("x-key"); got != "a b" {
		t.Errorf("the header is %q", got)
	}
}

// TestTelemetryEnd: what the end of a session ends is exported as it ended.
func TestTelemetryEnd(t *testing.T) {
	p, c := newPlace(t), newCollector(t)
	models(p, func(r *modeltest.Request) modeltest.Answer {
		if turnOf(r) == 0 {
			return modeltest.Call("Bash", input{"command": "sleep 1000", "run_in_background": true})
		}
		return modeltest.Text("done")
	})
	p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL)
	p.Good("-p", "go", anything, "--no-wait")
	c.mu.Lock()
	defer c.mu.Unlock()
	found := false
	for _, s := range c.spans {
		if s.GetName() != "task local_bash" {
			continue
		}
		found = true
		if got := attribute(s.GetAttributes(), "drover.task.status"); got != `"killed"` {
			t.Errorf("the command is exported with the status %q: %v", got, s.GetAttributes())
		}
	}
	if !found {
		t.Errorf("the command is not exported: %v", c.paths())
	}
}

// TestTelemetryContent: the setting alone switches it on, and says that texts are sent too.
func TestTelemetryContent(t *testing.T) {
	p, c := newPlace(t), newCollector(t)
	traced(p, `--settings={"telemetry": {"mode": "on", "endpoint": "`+c.URL+`", "content": true}}`)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range []string{"PROMPTTEXT", "COMMANDTEXT", "SUBPROMPT", "ANSWERTEXT"} {
		if !strings.Contains(c.all.String(), text) {
			t.Errorf("%s was not sent", text)
		}
	}
}

// TestTelemetryOff: the setting and OTEL_SDK_DISABLED win over the other variables, and a project cannot have it.
func TestTelemetryOff(t *testing.T) {
	c := newCollector(t)
	for _, env := range []string{"DROVER_TELEMETRY=off", "OTEL_SDK_DISABLED=true"} {
		p := newPlace(t)
		p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, env)
		traced(p)
	}
	p := newPlace(t)
	p.File(".drover/settings.json", `{"telemetry": {"mode": "on", "endpoint": "`+c.URL+`"}}`, 0o600)
	traced(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all.Len() > 0 {
		t.Errorf("it was sent: %.500s", c.all.String())
	}
}

// TestTelemetryDown: a session is the same where nobody listens, and where the collector answers nothing.
func TestTelemetryDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // nobody accepts
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]net.Addr{"nobody listens": closed.Addr(), "no answer": l.Addr()} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+at.String())
			r := traced(p)
			if got := r.Text(); got != "ANSWERTEXT" {
				t.Errorf("the answer is %q", got)
			}
			if n := strings.Count(r.Stderr(), "telemetry: "); n != 1 {
				t.Errorf("%d notes of telemetry, want 1: %s", n, r.Stderr())
			}
		})
	}
}
