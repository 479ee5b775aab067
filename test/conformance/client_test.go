package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/modeltest"
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

func environment(dir string) []string {
	return []string{"HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
}

// metadata is the address that the suite knows for a client that names itself by a document.
const metadata = "https://conformance-test.local/client-metadata.json"

// again are scenarios in which the server wants another sign-in after the first, with the scope that
// it then wants.
var again = map[string]string{ //rules:constant a table
	"auth/scope-step-up": "mcp:write", "auth/scope-retry-limit": "mcp:admin", "auth/authorization-server-migration": "mcp:basic",
}

// signIn signs in to the server, as a user whose browser agrees to everything.
func signIn(bin, dir, url, scope string) error {
	var given struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given) // most have none
	args := []string{"mcp", "login", "--timeout", "20s", "s"}
	switch {
	case given.ID != "":
		args = append(args, "--client-id", given.ID)
		if given.Secret != "" {
			args = append(args, "--client-secret-env", "CLIENT_SECRET")
		}
	case strings.HasSuffix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "-cimd"):
		args = append(args, "--client-metadata", metadata)
	}
	if scope != "" {
		args = append(args, "--scope", scope)
	}
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o700); err != nil {
		return err
	}
	for _, a := range [][]string{{"mcp", "add", "--url", url, "s"}, args} {
		cmd := exec.Command(bin, a...)
		cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, os.Stderr, time.Second
		cmd.Env = append(environment(dir), "CLIENT_SECRET="+given.Secret)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return err
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(os.Stderr, lines.Text())
			if !strings.HasPrefix(lines.Text(), "http") {
				continue
			}
			res, err := http.Get(lines.Text()) // it is sent back to the address of the client at once
			if err != nil {
				return errors.Join(err, cmd.Wait())
			}
			_ = res.Body.Close()
		}
		if err := cmd.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, a, err) // some servers are not to be trusted, and the scenario looks for that
		}
	}
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
	scenario := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	scopes := []string{""}
	if more := again[scenario]; more != "" {
		scopes = append(scopes, more)
	}
	for _, scope := range scopes {
		if strings.HasPrefix(scenario, "auth/") {
			if err := signIn(bin, dir, url, scope); err != nil {
				return err
			}
		}
		mu.Lock()
		asked = false
		mu.Unlock()
		if err := prompt(bin, dir, string(config), model.URL); err != nil {
			return err
		}
	}
	return nil
}

// prompt runs an agent that has the server, and accepts what it asks.
func prompt(bin, dir, config, model string) error {
	cmd := exec.Command(bin, "-p", "go", "--mcp-config="+config, "--allowed-tools=mcp__s", "--ask-timeout", "20s")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = append(environment(dir), "ANTHROPIC_BASE_URL="+model, "ANTHROPIC_API_KEY=sk-test")
	ctx, end := context.WithCancel(context.Background())
	answered := make(chan error, 1)
	go func() { answered <- answers(ctx, cmd) }() // ends with ctx
	err := cmd.Run()
	end()
	return errors.Join(err, <-answered)
}

// clientScenarios are all but those of extensions.
func clientScenarios() map[string][]string {
	signIn := []string{
		"auth/metadata-default", "auth/metadata-var1", "auth/metadata-var2", "auth/metadata-var3", "auth/basic-cimd",
		"auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined",
		"auth/scope-step-up", "auth/scope-retry-limit", "auth/token-endpoint-auth-basic", "auth/token-endpoint-auth-post",
		"auth/token-endpoint-auth-none", "auth/pre-registration",
	}
	return map[string][]string{
		"2025-11-25": append([]string{"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
			"json-schema-2020-12-preservation"}, signIn...),
		"2026-07-28": append([]string{
			"tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers",
			"http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation",
			"auth/resource-mismatch", "auth/offline-access-scope", "auth/offline-access-not-supported",
			"auth/authorization-server-migration", "auth/iss-supported", "auth/iss-not-advertised", "auth/iss-supported-missing",
			"auth/iss-wrong-issuer", "auth/iss-unexpected", "auth/iss-normalized", "auth/metadata-issuer-mismatch",
		}, signIn...),
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
