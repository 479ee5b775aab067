package agentsdk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// recording is what the binary has read and written in all cases.
type recording struct {
	mu    sync.Mutex
	wires []wire
}

// wire is the traffic of one process or of several in turn: each line behind < (read) or >
// (written).
type wire struct {
	name  string
	lines []string
}

func (r *recording) add(name, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wires = append(r.wires, wire{name, strings.Split(strings.TrimSpace(string(text)), "\n")})
	return nil
}

// unlisted are kinds of lines that the SDK passes on, and that its types do not name.
var unlisted = []string{"command_lifecycle", "system/partial_message_discarded"}

// head are the types that lines are held against. A line is held against the member of the
// union that has its type and subtype, so that a mistake is named.
const head = `import type { Transport, SDKControlInitializeResponse, SDKControlInterruptResponse,
  SDKControlGetContextUsageResponse, McpServerStatus } from '@anthropic-ai/claude-agent-sdk';
type All = ReturnType<Transport['readMessages']> extends AsyncGenerator<infer M, any, any> ? M : never;
type Member<L, M = All> = M extends { type: infer T; subtype: infer S } ? (L extends { type: T; subtype: S } ? M : never)
  : M extends { type: infer T } ? (L extends { type: T } ? M : never) : never;
type Answers = {
  initialize: Omit<SDKControlInitializeResponse, 'account'>;
  interrupt: SDKControlInterruptResponse | undefined;
  get_context_usage: SDKControlGetContextUsageResponse;
  mcp_status: { mcpServers: McpServerStatus[] };
};
`

// source writes a program of TypeScript that has each line as a type.
func (r *recording) source() (text string, of map[int]string, counts map[string]int) {
	var b strings.Builder
	b.WriteString(head)
	line := strings.Count(head, "\n")
	of, counts = map[int]string{}, map[string]int{}
	put := func(name, text, kind string) {
		line++
		counts[kind]++
		of[line] = name + ": " + text
		b.WriteString(text + "\n")
	}
	seen := map[string]bool{}
	for _, w := range r.wires {
		asked := map[string]string{} // the subtypes of requests by their IDs
		for _, l := range w.lines {
			var m struct {
				Type      string
				Subtype   string
				RequestID string `json:"request_id"`
				Request   struct{ Subtype string }
				Response  struct {
					Subtype   string
					RequestID string `json:"request_id"`
					Response  json.RawMessage
				}
			}
			if len(l) < 2 || json.Unmarshal([]byte(l[1:]), &m) != nil {
				put(w.name, fmt.Sprintf("const bad%d: never = %q;", line, l), "no JSON")
				continue
			}
			if l[0] == '<' {
				asked[m.RequestID] = m.Request.Subtype
				continue
			}
			kind := strings.TrimSuffix(m.Type+"/"+m.Subtype, "/")
			if slices.Contains(unlisted, kind) || seen[shape(l[1:])] {
				continue
			}
			seen[shape(l[1:])] = true
			put(w.name, fmt.Sprintf("type L%d = %s; export const l%[1]d: Member<L%[1]d> = null! as L%[1]d;", line, l[1:]), kind)
			request := asked[m.Response.RequestID]
			if m.Type == "control_response" && m.Response.Subtype == "success" && slices.Contains(
				[]string{"initialize", "interrupt", "get_context_usage", "mcp_status"}, request) {
				put(w.name, fmt.Sprintf("type L%d = %s; export const l%[1]d: Answers['%[3]s'] = null! as L%[1]d;", line,
					m.Response.Response, request), "answer to "+request)
			}
		}
	}
	return b.String(), of, counts
}

// shape is a line without what differs from line to line and has no type of its own.
func shape(line string) string {
	return regexp.MustCompile(`"[^"]{16,}"|[0-9]+`).ReplaceAllString(line, "0")
}

var complaint = regexp.MustCompile(`^lines\.ts\((\d+),\d+\): error`)

// check has the compiler hold the lines against the types of the SDK.
func (r *recording) check(t *testing.T) {
	if len(r.wires) == 0 {
		t.Skip("SKIPPED LOUDLY: nothing was recorded, so no line was held against the types of the SDK")
	}
	dir, err := sdk()
	if err != nil {
		t.Fatal(err)
	}
	text, of, counts := r.source()
	if err := os.WriteFile(filepath.Join(dir, "lines.ts"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules/.bin/tsc"), "--strict", "--noEmit", "--skipLibCheck",
		"--module", "nodenext", "--target", "es2022", "--pretty", "false", "lines.ts")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	for text := range bytes.Lines(out) {
		if m := complaint.FindSubmatch(text); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			t.Errorf("%.300s\n\t%s", of[n], bytes.TrimSpace(text))
		} else if !bytes.HasPrefix(text, []byte("lines.ts")) {
			t.Logf("\t%s", bytes.TrimRight(text, "\n"))
		}
	}
	if err != nil && !t.Failed() {
		t.Errorf("tsc: %v\n%s", err, out)
	}
	for _, kind := range []string{"system/init", "assistant", "user", "result/success", "result/error_during_execution",
		"result/error_max_structured_output_retries", "stream_event", "system/api_retry", "system/task_started", "system/task_updated", "system/task_progress",
		"system/task_notification", "system/background_tasks_changed", "system/status", "system/informational",
		"system/session_state_changed", "system/hook_started", "system/hook_response", "control_request", "control_response", "answer to initialize",
		"answer to get_context_usage", "answer to mcp_status", "answer to interrupt"} {
		if counts[kind] == 0 {
			t.Errorf("no case has a line of kind %s: have %v", kind, counts)
		}
	}
}
