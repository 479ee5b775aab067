// Agent speaks the Agent Client Protocol for tests. Each line of a prompt, or part between ;;, is a command; flags say
// what it can and what is wrong with it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	acp "github.com/coder/acp-go-sdk"
)

var (
	load    = flag.Bool("load", false, "sessions can be loaded, from -state")
	resume  = flag.Bool("resume", false, "sessions can be resumed, from -state")
	state   = flag.String("state", "", "folder in which sessions are kept")
	hang    = flag.Bool("hang", false, "hang at initialize")
	auth    = flag.Bool("auth", false, "want a login")
	version = flag.Int("version", 1, "of the protocol")
	deaf    = flag.Bool("deaf", false, "do not answer to cancel")
	stay    = flag.Bool("stay", false, "ignore TERM and the end of stdin")
)

type agent struct {
	conn *acp.Connection

	mu     sync.Mutex
	cancel map[string]context.CancelFunc
	tools  int
}

func main() {
	flag.Parse()
	a := &agent{cancel: map[string]context.CancelFunc{}}
	ready := make(chan struct{})
	a.conn = acp.NewConnection(func(ctx context.Context, method string, params json.RawMessage) (any, *acp.RequestError) {
		<-ready
		return a.handle(ctx, method, params)
	}, os.Stdout, os.Stdin)
	a.conn.SetLogger(slog.New(slog.DiscardHandler))
	close(ready)
	if *stay {
		signalIgnore()
		select {}
	}
	<-a.conn.Done()
}

func (a *agent) handle(ctx context.Context, method string, params json.RawMessage) (any, *acp.RequestError) {
	var p struct {
		SessionID string `json:"sessionId"`
		Cwd       string `json:"cwd"`
		ModelID   string `json:"modelId"`
		Prompt    []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	}
	_ = json.Unmarshal(params, &p)
	switch method {
	case "initialize":
		if *hang {
			select {}
		}
		session := map[string]any{}
		if *resume {
			session["resume"] = map[string]any{}
		}
		return map[string]any{
			"protocolVersion": *version,
			"agentCapabilities": map[string]any{"loadSession": *load, "sessionCapabilities": session,
				"somethingNew": []int{1, 2}},
			"authMethods": []any{map[string]any{"id": "key", "name": "A key"}},
		}, nil
	case "session/new":
		if *auth {
			return nil, acp.NewAuthRequired(nil)
		}
		id := fmt.Sprintf("s%d", os.Getpid())
		a.keep(id, "")
		return map[string]any{"sessionId": id, "models": map[string]any{"currentModelId": "small",
			"availableModels": []any{map[string]any{"modelId": "small", "name": "Small"},
				map[string]any{"modelId": "big", "name": "Big One"}}}}, nil
	case "session/set_model":
		a.keep(p.SessionID, "model "+p.ModelID+"\n")
		return map[string]any{}, nil
	case "session/load", "session/resume":
		text, err := os.ReadFile(filepath.Join(*state, p.SessionID))
		if err != nil {
			return nil, &acp.RequestError{Code: -32002, Message: "no such session"}
		}
		if method == "session/load" {
			a.update(p.SessionID, map[string]any{"sessionUpdate": "agent_message_chunk", "content": content("REPLAY " + string(text))})
		}
		return map[string]any{}, nil
	case "session/cancel":
		a.mu.Lock()
		defer a.mu.Unlock()
		if stop := a.cancel[p.SessionID]; stop != nil && !*deaf {
			stop()
		}
		return nil, nil
	case "session/prompt":
		turn, stop := context.WithCancel(ctx)
		defer stop()
		a.mu.Lock()
		a.cancel[p.SessionID] = stop
		a.mu.Unlock()
		result := map[string]any{"stopReason": "end_turn"}
		var all strings.Builder
		for _, b := range p.Prompt {
			all.WriteString(b.Text + "\n")
		}
		a.keep(p.SessionID, all.String())
		for _, line := range strings.Split(strings.ReplaceAll(all.String(), ";;", "\n"), "\n") {
			a.do(turn, p.SessionID, strings.TrimSpace(line), result)
			if turn.Err() != nil {
				return map[string]any{"stopReason": "cancelled"}, nil
			}
		}
		return result, nil
	}
	return nil, acp.NewMethodNotFound(method)
}

// keep adds to what is kept of a session.
func (a *agent) keep(id, text string) {
	if *state == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(*state, id), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

func content(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

func (a *agent) update(session string, u map[string]any) {
	_ = a.conn.SendNotification(context.Background(), "session/update", map[string]any{"sessionId": session, "update": u})
}

func (a *agent) say(session, text string) {
	a.update(session, map[string]any{"sessionUpdate": "agent_message_chunk", "content": content(text)})
}

func (a *agent) call(ctx context.Context, method string, params map[string]any) (map[string]any, error) {
	return acp.SendRequest[map[string]any](a.conn, ctx, method, params)
}

// do follows one line of a prompt.
func (a *agent) do(ctx context.Context, s, line string, result map[string]any) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "say":
		a.say(s, rest)
	case "think":
		a.update(s, map[string]any{"sessionUpdate": "agent_thought_chunk", "content": content(rest)})
	case "new": // an update that nobody knows
		a.update(s, map[string]any{"sessionUpdate": "compaction_update", "content": content("NEW")})
	case "tool": // a command that the agent runs by itself
		a.tools++
		id := fmt.Sprint("t", a.tools)
		a.update(s, map[string]any{"sessionUpdate": "tool_call", "toolCallId": id, "title": rest, "kind": "execute",
			"status": "in_progress", "rawInput": map[string]any{"command": rest}})
		out, err := exec.CommandContext(ctx, "bash", "-c", rest).CombinedOutput()
		status := "completed"
		if err != nil {
			status = "failed"
		}
		a.update(s, map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status,
			"content": []any{map[string]any{"type": "content", "content": content(string(out))}}})
	case "ask", "askodd", "asktitle", "asklasting": // permission for a command
		a.tools++
		call := map[string]any{"toolCallId": fmt.Sprint("t", a.tools), "title": rest, "kind": "execute", "status": "pending",
			"rawInput": map[string]any{"command": rest}}
		if word == "askodd" {
			call["kind"], call["rawInput"] = "other", map[string]any{"odd": rest}
		}
		if word == "asktitle" {
			delete(call, "rawInput")
		}
		options := []any{
			map[string]any{"optionId": "always", "name": "Always", "kind": "allow_always"},
			map[string]any{"optionId": "once", "name": "Yes", "kind": "allow_once"},
			map[string]any{"optionId": "no", "name": "No", "kind": "reject_once"},
		}
		if word == "asklasting" {
			options = append(options[:1:1], options[2])
		}
		got, err := a.call(ctx, "session/request_permission", map[string]any{"sessionId": s, "toolCall": call, "options": options})
		text, _ := json.Marshal(got)
		if err != nil {
			text = []byte(err.Error())
		}
		a.say(s, fmt.Sprintf("permission: %s\n", text))
	case "plan":
		a.update(s, map[string]any{"sessionUpdate": "plan", "entries": []any{
			map[string]any{"content": "first", "status": "completed", "priority": "high"},
			map[string]any{"content": rest, "status": "in_progress", "priority": "high"}}})
	case "read", "write":
		path, text, _ := strings.Cut(rest, " ")
		var got map[string]any
		var err error
		if word == "read" {
			got, err = a.call(ctx, "fs/read_text_file", map[string]any{"sessionId": s, "path": path})
		} else {
			got, err = a.call(ctx, "fs/write_text_file", map[string]any{"sessionId": s, "path": path, "content": text})
		}
		a.say(s, fmt.Sprintf("%s: %v %v\n", word, got, err))
	case "term":
		got, err := a.call(ctx, "terminal/create", map[string]any{"sessionId": s, "command": rest})
		if err != nil {
			a.say(s, fmt.Sprintf("terminal: %v\n", err))
			return
		}
		id := map[string]any{"sessionId": s, "terminalId": got["terminalId"]}
		_, _ = a.call(ctx, "terminal/wait_for_exit", id)
		out, _ := a.call(ctx, "terminal/output", id)
		_, _ = a.call(ctx, "terminal/release", id)
		text, _ := json.Marshal(out)
		a.say(s, fmt.Sprintf("terminal: %s\n", text))
	case "usage":
		result["usage"] = map[string]any{"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}
		a.update(s, map[string]any{"sessionUpdate": "usage_update", "used": 100, "size": 1000,
			"cost": map[string]any{"amount": 0.25, "currency": "USD"}})
	case "stop": // with a reason
		result["stopReason"] = rest
	case "wait": // until the turn is cancelled
		if *deaf {
			select {}
		}
		<-ctx.Done()
	case "die":
		fmt.Fprintln(os.Stderr, "it hurts")
		os.Exit(3)
	case "dieonce":
		if _, err := os.Stat(filepath.Join(*state, "died")); err != nil {
			_ = os.WriteFile(filepath.Join(*state, "died"), nil, 0o600)
			os.Exit(3)
		}
		a.say(s, "alive again")
	case "daemon":
		cmd := exec.Command("sleep", "300")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
		a.say(s, fmt.Sprintf("daemon %d\n", cmd.Process.Pid))
	case "junk":
		for i := range 50 {
			fmt.Fprintf(os.Stdout, "this is no message %d\n", i)
		}
	case "long":
		fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","method":"session/update","params":{"x":"%s"}}`+"\n", strings.Repeat("x", 12<<20))
	case "longanswer":
		fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":99,"result":"%s"}`+"\n", strings.Repeat("x", 12<<20))
	case "twice":
		for range 3 {
			fmt.Fprintln(os.Stdout, `{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}`)
		}
	case "flood":
		for i := range 20000 {
			a.say(s, fmt.Sprintf("flood %d ", i))
		}
	case "requests":
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				_, _ = a.call(ctx, "fs/read_text_file", map[string]any{"sessionId": s, "path": "/etc/nothing"})
			})
		}
		all.Wait()
	case "sleep":
		d, _ := time.ParseDuration(rest)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}
