package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/model/modeltest"
)

// asClient is the variable that makes this program the client that the suite starts: it
// names the binary.
const asClient = "DROVER_CONFORMANCE_CLIENT"

func TestMain(m *testing.M) {
	if bin := os.Getenv(asClient); bin != "" {
		if err := client(bin, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// calls are what the scenario says, or one of each tool. A tool with a schema as its
// argument gets that of another tool.
func calls(schemas map[string]json.RawMessage) (list []toolCall) {
	var scenario struct {
		ToolCalls []toolCall `json:"toolCalls"`
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &scenario) // most have none
	if len(scenario.ToolCalls) > 0 {
		return scenario.ToolCalls
	}
	for name, schema := range schemas {
		args := json.RawMessage(`{}`)
		switch {
		case name == "add_numbers":
			args = json.RawMessage(`{"a":5,"b":3}`)
		case strings.Contains(string(schema), `"schema"`):
			for other, schema := range schemas {
				if other != name {
					args = json.RawMessage(`{"schema":` + string(schema) + `}`)
				}
			}
		}
		list = append(list, toolCall{name, args})
	}
	return list
}

// answers accepts all forms as they are, until ctx ends.
func answers(ctx context.Context, like *exec.Cmd) error {
	watch := exec.CommandContext(ctx, like.Path, "approvals", "--watch", "--json")
	watch.Dir, watch.Env, watch.WaitDelay = like.Dir, like.Env, time.Second
	out, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var q struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(lines.Bytes(), &q) != nil || q.ID == "" {
			continue
		}
		answer := exec.CommandContext(ctx, like.Path, "approvals", "answer", q.ID, "{}")
		answer.Dir, answer.Env, answer.Stderr = like.Dir, like.Env, os.Stderr
		_ = answer.Run() // it may be answered already
	}
	_ = watch.Wait() // it ends with ctx
	return nil
}

// client has an agent of the binary call each tool of the server at url once.
func client(bin, url string) (err error) {
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var mu sync.Mutex
	var next []toolCall
	asked := false
	model, err := modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		if p, err := r.Params(); err == nil && !asked {
			asked = true
			schemas := map[string]json.RawMessage{}
			for _, tool := range p.Tools {
				if name, ok := strings.CutPrefix(tool.Name, "mcp__s__"); ok {
					schemas[name] = tool.InputSchema
				}
			}
			next = calls(schemas)
		}
		if len(next) == 0 {
			return modeltest.Text("done")
		}
		call := next[0]
		next = next[1:]
		return modeltest.Call("mcp__s__"+call.Name, call.Arguments)
	})
	if err != nil {
		return err
	}
	defer model.Close()
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"s": map[string]any{"type": "http", "url": url}}})
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, "-p", "go", "--mcp-config="+string(config), "--allowed-tools=mcp__s", "--ask-timeout", "20s")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = []string{
		"HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir,
		"ANTHROPIC_BASE_URL=" + model.URL, "ANTHROPIC_API_KEY=sk-test",
	}
	ctx, end := context.WithCancel(context.Background())
	answered := make(chan error, 1)
	go func() { answered <- answers(ctx, cmd) }() // ends with ctx
	err = cmd.Run()
	end()
	return errors.Join(err, <-answered)
}

// clientScenarios are those without sign-in.
func clientScenarios() map[string][]string {
	return map[string][]string{
		"2025-11-25": {"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "json-schema-2020-12-preservation"},
		"2026-07-28": {
			"tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers",
			"http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation",
		},
	}
}

// TestClient runs the scenarios for clients against agents of the built binary.
func TestClient(t *testing.T) {
	s := install(t)
	if os.Getenv(fullRun) == "" {
		t.Skip("SKIPPED: the scenarios for clients run with " + fullRun + "=1")
	}
	t.Setenv(asClient, build(t))
	for revision, names := range clientScenarios() {
		t.Run(revision, func(t *testing.T) {
			all := map[string]*result{}
			for _, name := range names {
				for _, r := range s.run(t, "client", "--command", os.Args[0], "--scenario", name, "--spec-version", revision) {
					all[name] = r
				}
			}
			judge(t, "client "+revision, all)
		})
	}
}
