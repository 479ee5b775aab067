package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// editor is an ACP client that starts the built program.
type editor struct {
	*acp.ClientSideConnection
	p  *place
	r  *running
	in *os.File

	decide func(acp.RequestPermissionRequest) acp.PermissionOptionId // empty: cancelled
	fs     map[string]string                                         // unsaved buffers, by path

	mu      sync.Mutex
	seen    []string // what was told, a line each; chunks of one kind are one
	updates []acp.SessionUpdate
	asked   []acp.RequestPermissionRequest
	grown   chan struct{} // closed and replaced with each update
}

// edits starts the program as an editor does, and initializes it.
func (p *place) edits(offers acp.ClientCapabilities, args ...string) *editor {
	p.t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { out.Close() })
	e := &editor{p: p, in: out, grown: make(chan struct{})}
	e.r = p.startWith(in, append([]string{"acp"}, args...)...)
	in.Close()
	from, to := io.Pipe()
	go func() { // ends with stdout
		at := 0
		for {
			e.r.mu.Lock()
			lines, grown := e.r.lines[at:], e.r.grown
			at = len(e.r.lines)
			e.r.mu.Unlock()
			for _, line := range lines {
				if _, err := io.WriteString(to, line+"\n"); err != nil {
					return
				}
			}
			if len(lines) > 0 {
				continue
			}
			select {
			case <-grown:
			case <-e.r.done:
				to.Close()
				return
			}
		}
	}()
	e.ClientSideConnection = acp.NewClientSideConnection(e, out, from)
	got, err := e.Initialize(p.t.Context(), acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber, ClientCapabilities: offers})
	if err != nil || got.ProtocolVersion != 1 {
		p.t.Fatalf("%+v, %v", got, err)
	}
	return e
}

// opens opens a session in the folder of the place.
func (e *editor) opens(servers ...acp.McpServer) acp.SessionId {
	e.p.t.Helper()
	if servers == nil {
		servers = []acp.McpServer{}
	}
	got, err := e.NewSession(e.p.t.Context(), acp.NewSessionRequest{Cwd: e.p.dir, McpServers: servers})
	if err != nil {
		e.p.t.Fatal(err)
	}
	return got.SessionId
}

// says sends a prompt and returns how its turn has ended.
func (e *editor) says(id acp.SessionId, text string) (acp.StopReason, error) {
	got, err := e.Prompt(e.p.t.Context(), acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
	return got.StopReason, err
}

// ends sends a prompt whose turn must end well.
func (e *editor) ends(id acp.SessionId, text string) {
	e.p.t.Helper()
	if why, err := e.says(id, text); why != acp.StopReasonEndTurn || err != nil {
		e.p.t.Fatalf("%s, %v: %s", why, err, e.r.stderr.String())
	}
}

// leaves closes stdin. The program must end well and leave nothing.
func (e *editor) leaves() result {
	e.p.t.Helper()
	e.in.Close()
	res := e.r.wait()
	if res.code != 0 {
		e.p.t.Errorf("exit code %d: %s", res.code, res.stderr)
	}
	return res
}

// told waits until a line was told that has all texts.
func (e *editor) told(texts ...string) string {
	e.p.t.Helper()
	var line string
	e.until(fmt.Sprintf("%q", texts), func() bool {
		at := slices.IndexFunc(e.seen, func(line string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
		})
		if at >= 0 {
			line = e.seen[at]
		}
		return at >= 0
	})
	return line
}

// until waits for a condition of what was told.
func (e *editor) until(what string, is func() bool) {
	e.p.t.Helper()
	late := time.After(patience)
	for {
		e.mu.Lock()
		ok, grown, seen := is(), e.grown, strings.Join(e.seen, "\n")
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-grown:
		case <-e.r.done:
			e.p.t.Fatalf("the program has ended before %s:\n%s\n%s", what, seen, e.r.stderr.String())
		case <-late:
			e.p.t.Fatalf("never told %s:\n%s\n%s", what, seen, e.r.stderr.String())
		}
	}
}

func (e *editor) lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// SessionUpdate implements [acp.Client].
func (e *editor) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := n.Update
	e.updates = append(e.updates, u)
	chunk := func(kind string, b acp.ContentBlock) {
		text := "[no text]"
		if b.Text != nil {
			text = b.Text.Text
		}
		if at := len(e.seen) - 1; at >= 0 && strings.HasPrefix(e.seen[at], kind+" ") {
			e.seen[at] += text
			return
		}
		e.seen = append(e.seen, kind+" "+text)
	}
	line := ""
	switch {
	case u.UserMessageChunk != nil:
		chunk("user", u.UserMessageChunk.Content)
	case u.AgentMessageChunk != nil:
		chunk("text", u.AgentMessageChunk.Content)
	case u.AgentThoughtChunk != nil:
		chunk("thought", u.AgentThoughtChunk.Content)
	case u.ToolCall != nil:
		c := u.ToolCall
		line = fmt.Sprintf("call %s %s %s", c.Status, c.Kind, c.Title) + contents(c.Content)
		for _, at := range c.Locations {
			line += " at " + at.Path
		}
	case u.ToolCallUpdate != nil:
		c := u.ToolCallUpdate
		line = "update"
		if c.Status != nil {
			line += " " + string(*c.Status)
		}
		if c.Title != nil {
			line += " " + *c.Title
		}
		line += contents(c.Content)
	case u.Plan != nil:
		line = "plan"
		for _, one := range u.Plan.Entries {
			line += fmt.Sprintf(" [%s %s]", one.Status, one.Content)
		}
	case u.CurrentModeUpdate != nil:
		line = "mode " + string(u.CurrentModeUpdate.CurrentModeId)
	case u.ConfigOptionUpdate != nil:
		line = "options"
		for _, one := range u.ConfigOptionUpdate.ConfigOptions {
			if one.Select != nil {
				line += fmt.Sprintf(" %s=%s", one.Select.Id, one.Select.CurrentValue)
			}
		}
	case u.AvailableCommandsUpdate != nil:
		line = "commands"
		for _, one := range u.AvailableCommandsUpdate.AvailableCommands {
			line += " " + one.Name
		}
	case u.SessionInfoUpdate != nil:
		line = "info"
		if u.SessionInfoUpdate.Title != nil {
			line += " " + *u.SessionInfoUpdate.Title
		}
	case u.UsageUpdate != nil: // after each reply
	}
	if line != "" {
		e.seen = append(e.seen, line)
	}
	close(e.grown)
	e.grown = make(chan struct{})
	return nil
}

func contents(list []acp.ToolCallContent) (line string) {
	for _, c := range list {
		switch {
		case c.Diff != nil:
			before := "(new)"
			if c.Diff.OldText != nil {
				before = *c.Diff.OldText
			}
			line += fmt.Sprintf(" diff %s: %s -> %s", filepath.Base(c.Diff.Path), before, c.Diff.NewText)
		case c.Terminal != nil:
			line += " terminal " + c.Terminal.TerminalId
		case c.Content != nil && c.Content.Content.Text != nil:
			line += " | " + c.Content.Content.Text.Text
		}
	}
	return line
}

// RequestPermission implements [acp.Client].
func (e *editor) RequestPermission(ctx context.Context, r acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	e.mu.Lock()
	e.asked = append(e.asked, r)
	decide := e.decide
	line := "asked"
	for _, o := range r.Options {
		line += fmt.Sprintf(" %s=%s", o.Kind, o.Name)
	}
	e.seen = append(e.seen, line)
	close(e.grown)
	e.grown = make(chan struct{})
	e.mu.Unlock()
	if decide == nil {
		<-ctx.Done()
		return acp.RequestPermissionResponse{}, ctx.Err()
	}
	if id := decide(r); id != "" {
		return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(id)}, nil
	}
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
}

func always(id acp.PermissionOptionId) func(acp.RequestPermissionRequest) acp.PermissionOptionId {
	return func(acp.RequestPermissionRequest) acp.PermissionOptionId { return id }
}

var errNone = errors.New("not offered")

func (e *editor) ReadTextFile(_ context.Context, r acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text, ok := e.fs[r.Path]
	if !ok {
		return acp.ReadTextFileResponse{}, errNone
	}
	return acp.ReadTextFileResponse{Content: text}, nil
}

func (e *editor) WriteTextFile(_ context.Context, r acp.WriteTextFileRequest) (acp.WriteTextFileResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fs[r.Path] = r.Content
	return acp.WriteTextFileResponse{}, nil
}

func (e *editor) CreateTerminal(context.Context, acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	return acp.CreateTerminalResponse{}, errNone
}

func (e *editor) KillTerminal(context.Context, acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	return acp.KillTerminalResponse{}, errNone
}

func (e *editor) TerminalOutput(context.Context, acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	return acp.TerminalOutputResponse{}, errNone
}

func (e *editor) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	return acp.ReleaseTerminalResponse{}, errNone
}

func (e *editor) WaitForTerminalExit(context.Context, acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	return acp.WaitForTerminalExitResponse{}, errNone
}

// TestACP has an editor drive the built program over the Agent Client Protocol.
func TestACP(t *testing.T) {
	bin := build(t)
	for name, test := range (cases{
		"turn":    acpTurn,
		"deny":    acpDeny,
		"cancel":  acpCancel,
		"queue":   acpCancelAtOnce,
		"attach":  acpSeenElsewhere,
		"failure": acpFailure,

		"history":  acpHistory,
		"settings": acpSettings,
		"plan":     acpPlan,

		"garbage":            acpGarbage,
		"gone at once":       acpGone("", ""),
		"gone in a line":     acpGone(`{"jsonrpc":"2.0","id":1,"meth`, `"code":-32700`),
		"gone at open":       acpGone(acpHello+acpNew, `"protocolVersion":1`),
		"gone in a call":     acpGoneIn("update in_progress", "cat fifo"),
		"gone at a question": acpGoneIn("asked", "touch made"),
		"signal":             acpSignal,
		"content":            acpContent,
		"servers":            acpServers,
		"form":               acpForm,
		"choice":             acpChoice,
		"background":         acpBackground,
		"subagent":           acpSubagent,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// acpTurn: a turn with text, a file that is written, edited and read, and a command that is asked about.
func acpTurn(t *testing.T, p *place) {
	file := filepath.Join(p.dir, "a.txt")
	p.model(map[string][]step{"main": {
		several("Write", map[string]any{"file_path": file, "content": "one\n"}),
		calls("Edit", map[string]any{"file_path": file, "old_string": "one", "new_string": "two"}),
		calls("Read", map[string]any{"file_path": file}),
		calls("Bash", bash("cat a.txt; touch made")), says("done"),
	}})
	e := p.edits(acp.ClientCapabilities{}, "--permission-mode", "acceptEdits")
	e.decide = always("allow")
	e.ends(e.opens(), "go")
	// The client's library hands out requests beside the updates: their order among each other is lost there.
	const asked = "asked allow_once=Allow once allow_always=Always allow Bash(cat a.txt; touch made) reject_once=Reject"
	if !slices.Contains(e.lines(), asked) {
		t.Errorf("told\n%s\nwithout %s", strings.Join(e.lines(), "\n"), asked)
	}
	got := slices.DeleteFunc(e.lines(), func(l string) bool {
		return strings.HasPrefix(l, "commands") || strings.HasPrefix(l, "info") || strings.HasPrefix(l, "options") || l == asked
	})
	want := []string{
		"call pending edit Write a.txt diff a.txt: (new) -> one\n at " + file,
		"update in_progress", "update completed diff a.txt: (new) -> one\n",
		"call pending edit Edit a.txt diff a.txt: one -> two at " + file,
		"update in_progress", "update completed diff a.txt: one -> two",
		"call pending read Read a.txt at " + file,
		"update in_progress", "update completed |      1\ttwo\n",
		"call pending execute `cat a.txt; touch made`", "update in_progress", "update completed | ```\ntwo\n```",
		"text done",
	}
	if !slices.Equal(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r := e.asked[0]; string(r.ToolCall.ToolCallId) == "" || *r.ToolCall.Title != "`cat a.txt; touch made`" {
		t.Errorf("asked %+v", r)
	}
	if !p.there("made") {
		t.Error("the command was allowed and did not run")
	}
	e.leaves()
}

// acpDeny: what the client rejects does not run, and the model is told; always is kept.
func acpDeny(t *testing.T, p *place) {
	m := p.model(map[string][]step{"main": {calls("Bash", bash("touch made")), says("no"), calls("Bash", bash("touch one")),
		calls("Bash", bash("touch one")), says("yes"), calls("Bash", bash("rm one")), says("cancelled")}})
	e := p.edits(acp.ClientCapabilities{})
	e.decide = always("reject")
	id := e.opens()
	e.ends(id, "go")
	e.told("update failed", "rejected")
	if p.there("made") || !strings.Contains(m.Requests()[1].LastText(), "the user has rejected this call") {
		t.Errorf("the rejected command ran, or the model was told %q", m.Requests()[1].LastText())
	}
	e.decide = always("allow-always")
	e.ends(id, "go")
	if len(e.asked) != 2 || !p.there("one") {
		t.Errorf("asked %d times, one made: %t", len(e.asked), p.there("one"))
	}
	e.decide = always("")
	e.ends(id, "go")
	if !p.there("one") {
		t.Error("a request that the client has cancelled was taken as permission")
	}
	e.leaves()
}

// acpCancel: a cancel ends the turn with its command, and the session goes on.
func acpCancel(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {calls("Bash", bash("echo begun; sleep 1000")), says("again"), calls("Bash", bash("touch made"))}})
	e := p.edits(acp.ClientCapabilities{}, "--settings", `{"permissions":{"allow":["Bash(echo:*)","Bash(sleep:*)"]}}`)
	id := e.opens()
	turn := func() chan acp.StopReason {
		got := make(chan acp.StopReason, 1)
		go func() {
			why, err := e.says(id, "go")
			if err != nil {
				why = acp.StopReason(err.Error())
			}
			got <- why
		}()
		return got
	}
	got := turn()
	e.told("update in_progress")
	if _, err := e.says(id, "two at once"); err == nil || !strings.Contains(err.Error(), "answers another prompt") {
		t.Errorf("a second prompt at once: %v", err)
	}
	if err := e.Cancel(t.Context(), acp.CancelNotification{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	if why := <-got; why != acp.StopReasonCancelled {
		t.Errorf("the turn ended as %s", why)
	}
	p.leaves(patience, "sleep 1000")
	e.ends(id, "go on")
	got = turn() // and one that waits for a decision
	e.told("asked")
	if err := e.Cancel(t.Context(), acp.CancelNotification{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	if why := <-got; why != acp.StopReasonCancelled {
		t.Errorf("the turn ended as %s", why)
	}
	e.leaves()
	if p.there("made") {
		t.Error("what nobody has allowed ran")
	}
}

// acpCancelAtOnce: a cancel directly behind its prompt ends that prompt.
func acpCancelAtOnce(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {calls("Bash", bash("sleep 1000")), says("never")}})
	e := p.edits(acp.ClientCapabilities{}, "--settings", `{"permissions":{"allow":["Bash(sleep:*)"]}}`)
	id := e.opens()
	for _, prompt := range []string{"p1", "p2", "p3"} {
		write(t, e.in, `{"jsonrpc":"2.0","id":"`+prompt+`","method":"session/prompt","params":{"sessionId":"`+string(id)+
			`","prompt":[{"type":"text","text":"go"}]}}`+"\n"+
			`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"`+string(id)+`"}}`+"\n")
		e.r.until(`"id":"`+prompt+`"`, `"stopReason":"cancelled"`)
	}
	e.leaves()
}

// acpSeenElsewhere: another terminal lists the session and what it runs; a client that leaves
// in a call leaves nothing.
func acpSeenElsewhere(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {calls("Bash", later("sleep 1000")), calls("Bash", bash("echo begun; sleep 1001")), says("never")}})
	e := p.edits(acp.ClientCapabilities{}, "--settings", `{"permissions":{"allow":["Bash(echo:*)","Bash(sleep:*)"]}}`)
	id := e.opens()
	go func() { _, _ = e.says(id, "go") }()
	e.told("update in_progress")
	if !within(patience, func() bool { return strings.Count(p.good("ps").stdout(), "sleep 100") == 2 }) {
		t.Errorf("drover ps: %s", p.good("ps").stdout())
	}
	if list := p.good("sessions").stdout(); !strings.Contains(list, string(id)) || !strings.Contains(list, "live") {
		t.Errorf("drover sessions: %s", list)
	}
	e.leaves()
	p.leaves(0, "sleep 100")
}

// acpFailure: a turn that fails is an error with the words of the provider, and so is what
// cannot be opened.
func acpFailure(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {}})
	e := p.edits(acp.ClientCapabilities{})
	id := e.opens()
	if _, err := e.says(id, "go"); err == nil || !strings.Contains(err.Error(), "no step 1 for main") {
		t.Errorf("the turn ended with %v", err)
	}
	for _, c := range []struct {
		folder, want string
	}{{"relative", "is not absolute"}, {filepath.Join(p.dir, "none"), "no such file"}} {
		_, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: c.folder, McpServers: []acp.McpServer{}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.folder, err)
		}
	}
	if _, err := e.says("s00000000", "go"); err == nil || !strings.Contains(err.Error(), "-32002") {
		t.Errorf("an unknown session: %v", err)
	}
	if got, err := e.CloseSession(t.Context(), acp.CloseSessionRequest{SessionId: id}); err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := e.says(id, "go"); err == nil || !strings.Contains(err.Error(), "is not open here") {
		t.Errorf("a closed session: %v", err)
	}
	e.leaves()
}

// talk are the lines that show what was said and done, without those about the session.
func (e *editor) talk() []string {
	return slices.DeleteFunc(e.lines(), func(l string) bool {
		return strings.HasPrefix(l, "commands") || strings.HasPrefix(l, "info") || strings.HasPrefix(l, "options")
	})
}

// forget drops what was told.
func (e *editor) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = nil
}

// acpHistory: an earlier session is listed, loaded with its conversation, resumed without, forked and deleted.
func acpHistory(t *testing.T, p *place) {
	m := p.model(map[string][]step{"main": {calls("Bash", bash("echo hello")), says("first"), says("second"), says("third"), says("fourth")}})
	e := p.edits(acp.ClientCapabilities{})
	id, unused := e.opens(), e.opens()
	e.ends(id, "say hello")
	e.told("info say hello")
	before := e.talk()
	e.leaves()

	e = p.edits(acp.ClientCapabilities{})
	list, err := e.ListSessions(t.Context(), acp.ListSessionsRequest{Cwd: &p.dir})
	if err != nil || len(list.Sessions) != 1 || list.Sessions[0].SessionId != id || *list.Sessions[0].Title != "say hello" ||
		list.Sessions[0].Cwd != p.dir {
		t.Errorf("listed %+v, %v; an unused session is %s", list.Sessions, err, unused)
	}
	at := func() acp.LoadSessionRequest {
		return acp.LoadSessionRequest{SessionId: id, Cwd: p.dir, McpServers: []acp.McpServer{}}
	}
	if got, err := e.LoadSession(t.Context(), at()); err != nil || got.Modes == nil || got.Modes.CurrentModeId != "default" {
		t.Fatalf("%+v, %v", got, err)
	}
	want := slices.DeleteFunc(append([]string{"user say hello"}, before...), func(l string) bool { return l == "update in_progress" })
	if got := e.talk(); !slices.Equal(got, want) {
		t.Errorf("shown\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	e.ends(id, "and on")
	if n := len(m.Requests()); n != 3 || !strings.Contains(string(m.Requests()[2].Body), "say hello") {
		t.Errorf("the model was asked %d times, the last time without what was said before", n)
	}
	copied, err := e.ForkSession(t.Context(), p.dir, id)
	if err != nil || copied == id {
		t.Fatalf("fork: %q, %v", copied, err)
	}
	e.ends(copied, "elsewhere")
	if body := string(m.Requests()[3].Body); !strings.Contains(body, "and on") {
		t.Error("the copy does not go on with the conversation")
	}
	if _, err := e.CloseSession(t.Context(), acp.CloseSessionRequest{SessionId: id}); err != nil {
		t.Error(err)
	}
	e.forget()
	if _, err := e.ResumeSession(t.Context(), acp.ResumeSessionRequest{SessionId: id, Cwd: p.dir}); err != nil {
		t.Fatal(err)
	}
	e.ends(id, "last")
	if got := e.talk(); !slices.Equal(got, []string{"text fourth"}) {
		t.Errorf("a resume has shown %q", got)
	}
	if res := p.run("attach", string(id), "--help"); res.code != 0 {
		t.Error(res.stderr)
	}
	write(t, e.in, `{"jsonrpc":"2.0","id":"d","method":"session/delete","params":{"sessionId":"`+string(id)+`"}}`+"\n")
	e.r.until(`"id":"d"`, `"result":{}`)
	if _, err := e.LoadSession(t.Context(), at()); err == nil || !strings.Contains(err.Error(), "-32002") {
		t.Errorf("a deleted session is loaded: %v", err)
	}
	e.leaves()
}

// ForkSession sends session/fork.
func (e *editor) ForkSession(ctx context.Context, cwd string, id acp.SessionId) (acp.SessionId, error) {
	got, err := e.UnstableForkSession(ctx, acp.UnstableForkSessionRequest{SessionId: id, Cwd: cwd})
	return got.SessionId, err
}

// acpSettings: modes, models and options are shown and changed; an approved plan changes the mode.
func acpSettings(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {calls("ExitPlanMode", map[string]any{"plan": "write it"}),
		calls("Write", map[string]any{"file_path": "made", "content": "x"}), says("done")}})
	if err := os.MkdirAll(filepath.Join(p.dir, ".drover", "commands"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, ".drover", "commands", "greet.md"), []byte("say hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := p.edits(acp.ClientCapabilities{}, "--model", "opus")
	got, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: p.dir, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	id := got.SessionId
	e.told("commands", "greet", "compact")
	if len(got.Modes.AvailableModes) != 5 || got.Modes.CurrentModeId != "default" || len(got.ConfigOptions) != 4 ||
		len(got.Models.AvailableModels) < 2 || !strings.Contains(string(got.Models.CurrentModelId), "opus") {
		t.Errorf("%+v %+v %+v", got.Modes, got.Models, got.ConfigOptions)
	}
	if _, err := e.SetSessionMode(t.Context(), acp.SetSessionModeRequest{SessionId: id, ModeId: "plan"}); err != nil {
		t.Error(err)
	}
	e.told("mode plan")
	e.told("options", "mode=plan")
	if _, err := e.SetSessionMode(t.Context(), acp.SetSessionModeRequest{SessionId: id, ModeId: "wild"}); err == nil ||
		!strings.Contains(err.Error(), "wild") {
		t.Errorf("an unknown mode: %v", err)
	}
	if _, err := e.UnstableSetSessionModel(t.Context(), acp.UnstableSetSessionModelRequest{SessionId: id, ModelId: "sonnet"}); err != nil {
		t.Error(err)
	}
	e.told("options", "model=claude-sonnet")
	for option, value := range map[acp.SessionConfigId]acp.SessionConfigValueId{"effort": "high", "session_mode": "autopilot"} {
		got, err := e.SetSessionConfigOption(t.Context(), acp.SetSessionConfigOptionRequest{
			ValueId: &acp.SetSessionConfigOptionValueId{SessionId: id, ConfigId: option, Value: value}})
		if err != nil || !slices.ContainsFunc(got.ConfigOptions, func(o acp.SessionConfigOption) bool {
			return o.Select.Id == option && o.Select.CurrentValue == value
		}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := e.SetSessionConfigOption(t.Context(), acp.SetSessionConfigOptionRequest{
		ValueId: &acp.SetSessionConfigOptionValueId{SessionId: id, ConfigId: "session_mode", Value: "interactive"}}); err != nil {
		t.Error(err)
	}
	p.good("configure", "--model", "haiku", string(id)) // in another terminal
	e.told("options", "model=claude-haiku", "effort=high")
	e.decide = always("allow-edits")
	e.ends(id, "go")
	e.told("asked", "Carry out the plan and accept edits", "Keep planning")
	e.told("mode acceptEdits")
	if !p.there("made") {
		t.Error("the approved plan was not carried out")
	}
	e.leaves()
}

// acpPlan: the to-dos of the agent are a plan.
func acpPlan(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {several("TaskCreate", map[string]any{"subject": "one", "description": "x"},
		"TaskCreate", map[string]any{"subject": "two", "description": "x"}),
		calls("TaskUpdate", map[string]any{"taskId": "1", "status": "completed"}), says("done")}})
	e := p.edits(acp.ClientCapabilities{})
	e.ends(e.opens(), "go")
	e.told("plan [completed one] [pending two]")
	e.leaves()
}

// acpBackground: a command in the background is a call that goes on after its turn, and its end
// begins a turn that is shown.
func acpBackground(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {calls("Bash", later("echo begun; cat fifo; echo bye; exit 3")), says("started"), says("noted"),
		calls("Bash", later("sleep 1000")), says("again")}})
	fifo := p.fifo("fifo")
	e := p.edits(acp.ClientCapabilities{}, "--permission-mode", "bypassPermissions")
	id := e.opens()
	e.ends(id, "go")
	want := []string{"call pending execute `echo begun; cat fifo; echo bye; exit 3`", "update in_progress"}
	if got := e.talk(); len(got) != 4 || !slices.Equal(got[:2], want) || !strings.HasPrefix(got[2], "update in_progress | ```") ||
		got[3] != "text started" {
		t.Errorf("told\n%s", strings.Join(got, "\n"))
	}
	p.free(fifo)
	e.told("update failed", "exit code 3", "bye")
	e.told("text noted")
	e.ends(id, "again")
	e.leaves()
	p.leaves(0, "sleep 1000")
}

// acpSubagent: the calls of a subagent are steps of the call that has started it.
func acpSubagent(t *testing.T, p *place) {
	run := map[string]any{"subagent_type": "general-purpose", "description": "look", "prompt": "look around"}
	p.model(map[string][]step{"main": {calls("Agent", run), says("done")},
		"general-purpose": {calls("Bash", bash("echo one")), calls("Bash", bash("touch made")), says("all is well")}})
	e := p.edits(acp.ClientCapabilities{})
	e.decide = always("allow")
	e.ends(e.opens(), "go")
	e.told("call pending other general-purpose: look | look around")
	e.told("update in_progress | - `echo one`\n- `touch made`")
	e.told("update completed", "all is well")
	e.told("call pending execute `touch made`") // about which the client was asked
	got := e.talk()
	if n := strings.Count(strings.Join(got, "\n"), "update completed"); n != 2 || len(e.asked) != 1 || !p.there("made") {
		t.Errorf("%d calls have ended, asked %d times:\n%s", n, len(e.asked), strings.Join(got, "\n"))
	}
	e.leaves()
}

const (
	acpHello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":99,"clientCapabilities":{}}}` + "\n"
	acpNew   = `{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}` + "\n"
)

// acpGarbage: what cannot be read or is not known has an error, and what stands around it is done.
func acpGarbage(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {says("hello")}})
	e := p.edits(acp.ClientCapabilities{})
	id := e.opens()
	piece := strings.Repeat("x", 1<<20)
	write(t, e.in, "garbage\n", "\n", "[]\n", "null\n", "\xff\n", `{"id":5,"result":{}}`+"\n", `{"jsonrpc":"2.0"}`+"\n",
		`{"jsonrpc":"2.0","id":"big","method":"session/prompt","params":{"sessionId":"`)
	for range 100 {
		write(t, e.in, piece)
	}
	write(t, e.in, `"}}`+"\n", `{"jsonrpc":"2.0","id":"a","method":"fly"}`+"\n", `{"jsonrpc":"2.0","id":"b","method":"session/prompt"}`+"\n",
		`{"jsonrpc":"2.0","id":"c","method":"session/prompt","params":{"sessionId":"`+string(id)+`","prompt":[]}}`+"\n",
		`{"jsonrpc":"2.0","id":"d","method":"session/prompt","params":{"sessionId":"`+string(id)+`","prompt":[{"type":"audio","data":"","mimeType":"audio/wav"}]}}`+"\n",
		`{"jsonrpc":"2.0","id":"e","method":"session/new","params":{"cwd":7}}`+"\n",
		`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s00000000"}}`+"\n", `{"jsonrpc":"2.0","method":"unheard"}`+"\n")
	for id, want := range map[string]string{"big": "longer than 64 MiB", "a": `"code":-32601`, "b": `"code":-32602`, "c": `"code":-32602`,
		"d": `"code":-32602`, "e": `"code":-32602`} {
		e.r.until(`"id":"`+id+`"`, `"error"`, want)
	}
	e.ends(id, "go")
	e.told("text hello")
	if n := strings.Count(strings.Join(e.leaves().lines, "\n"), `"id":null`); n != 5 {
		t.Errorf("%d answers to lines without an id, want 5", n)
	}
}

// acpGone: a client that writes a text and leaves has its answer, and leaves nothing.
func acpGone(text, want string) func(*testing.T, *place) {
	return func(t *testing.T, p *place) {
		p.model(map[string][]step{})
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r := p.startWith(in, "acp")
		in.Close()
		write(t, out, text)
		out.Close()
		if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), want) {
			t.Errorf("exit code %d\nstdout: %s\nstderr: %s", res.code, res.stdout(), res.stderr)
		}
	}
}

// acpGoneIn: a client that leaves when a line was told leaves nothing, and permits nothing.
func acpGoneIn(line, command string) func(*testing.T, *place) {
	return func(t *testing.T, p *place) {
		p.model(map[string][]step{"main": {calls("Bash", bash(command)), says("never")}})
		p.fifo("fifo")
		e := p.edits(acp.ClientCapabilities{})
		id := e.opens()
		go func() { _, _ = e.says(id, "go") }()
		e.told(line)
		e.leaves()
		p.leaves(0, "cat fifo")
		if p.there("made") {
			t.Error("what nobody has allowed ran")
		}
	}
}

// acpSignal: a signal ends the program as the end of stdin does.
func acpSignal(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {calls("Bash", bash("cat fifo")), says("never")}})
	p.fifo("fifo")
	e := p.edits(acp.ClientCapabilities{})
	id := e.opens()
	go func() { _, _ = e.says(id, "go") }()
	e.told("update in_progress")
	if err := e.r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if res := e.r.wait(); res.code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d: %s", res.code, res.stderr)
	}
	p.leaves(0, "cat fifo")
}

// acpContent: images, embedded text and links of a prompt reach the model, and a session that is
// loaded shows them again.
func acpContent(t *testing.T, p *place) {
	m := p.model(map[string][]step{"main": {says("seen")}})
	e := p.edits(acp.ClientCapabilities{})
	id := e.opens()
	got, err := e.Prompt(t.Context(), acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{
		acp.TextBlock("compare "), acp.ResourceLinkBlock("b.go", "file:///src/b%20c.go#L3"), acp.ImageBlock(dot, "image/png"),
		acp.ResourceBlock(acp.EmbeddedResourceResource{TextResourceContents: &acp.TextResourceContents{
			Uri: "file:///src/a.go", Text: "package a"}}),
	}})
	if err != nil || got.StopReason != acp.StopReasonEndTurn {
		t.Fatalf("%+v, %v", got, err)
	}
	body := string(m.Requests()[0].Body)
	for _, want := range []string{"compare @/src/b c.go#L3", "/src/a.go", "package a", `"media_type":"image/png","data":"` + dot} {
		if !strings.Contains(body, want) {
			t.Errorf("the model does not read %q", want)
		}
	}
	if _, err := e.Prompt(t.Context(), acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{
		acp.ImageBlock("bm8gaW1hZ2U=", "image/png")}}); err == nil || !strings.Contains(err.Error(), "-32602") {
		t.Errorf("what is no image was taken: %v", err)
	}
	e.forget()
	if _, err := e.LoadSession(t.Context(), acp.LoadSessionRequest{SessionId: id, Cwd: p.dir, McpServers: []acp.McpServer{}}); err != nil {
		t.Fatal(err)
	}
	e.told("user [no text]compare @/src/b c.go#L3")
	e.leaves()
}

// acpServers: MCP servers of the client are the session's, over stdio and http.
func acpServers(t *testing.T, p *place) {
	p.model(map[string][]step{"main": {calls("mcp__g__greet", map[string]any{}), calls("mcp__a__roots", map[string]any{}), says("done")}})
	p.greeter()
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return asker() },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(srv.Close)
	e := p.edits(acp.ClientCapabilities{})
	e.decide = always("allow")
	id := e.opens(acp.McpServer{Stdio: &acp.McpServerStdio{Name: "g", Command: "bash", Args: []string{filepath.Join(p.work, "greeter")},
		Env: []acp.EnvVariable{{Name: "WORD", Value: "editor"}}}},
		acp.McpServer{Http: &acp.McpServerHttpInline{Name: "a", Type: "http", Url: srv.URL, Headers: []acp.HttpHeader{}}})
	e.ends(id, "go")
	e.told("update completed", "hello from", "editor")
	e.told("update completed", p.dir)
	twice := []acp.McpServer{{Stdio: &acp.McpServerStdio{Name: "g", Command: "x", Args: []string{}, Env: []acp.EnvVariable{}}}}
	_, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: p.dir, McpServers: append(twice, twice...)})
	if err == nil || !strings.Contains(err.Error(), "two MCP servers") {
		t.Errorf("two servers of one name: %v", err)
	}
	e.leaves()
}

// UnstableCreateElicitation answers a form with the first choice of each field, or a fixed text.
func (e *editor) UnstableCreateElicitation(_ context.Context, r acp.UnstableCreateElicitationRequest) (
	acp.UnstableCreateElicitationResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	values := map[string]any{}
	e.seen = append(e.seen, "form "+r.Form.Message)
	close(e.grown)
	e.grown = make(chan struct{})
	for name, raw := range r.Form.RequestedSchema.Properties {
		field, _ := raw.(map[string]any)
		switch {
		case field["enum"] != nil:
			values[name] = field["enum"].([]any)[0]
		case field["type"] == "array":
			values[name] = field["items"].(map[string]any)["enum"]
		default:
			values[name] = "by the editor"
		}
	}
	return acp.UnstableCreateElicitationResponse{Accept: &acp.UnstableCreateElicitationAccept{Action: "accept", Content: values}}, nil
}

// acpForm: the form of an MCP server is shown by a client that can, and is left to a terminal
// otherwise.
func acpForm(t *testing.T, p *place) {
	m := p.model(map[string][]step{"main": {calls("mcp__f__form", map[string]any{}), says("done"), calls("mcp__f__form", map[string]any{}), says("done")}})
	p.foreign(asker(), true)
	forms := acp.ClientCapabilities{Elicitation: &acp.ElicitationCapabilities{Form: &acp.ElicitationFormCapabilities{}}}
	e := p.edits(forms)
	e.decide = always("allow")
	e.ends(e.opens(), "go")
	e.told("form")
	if said := m.Requests()[1].LastText(); !strings.Contains(said, "accept") {
		t.Errorf("the server was told %q", said)
	}
	e.leaves()
	e = p.edits(acp.ClientCapabilities{})
	e.decide = always("allow")
	id := e.opens()
	ended := make(chan error, 1)
	go func() { _, err := e.says(id, "go"); ended <- err }()
	line := e.told("text", "A question needs your answer", "drover approvals answer")
	_, ref, _ := strings.Cut(line, "approvals answer ")
	ref, _, _ = strings.Cut(ref, "`")
	p.good("approvals", "deny", ref)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	e.leaves()
}

// acpChoice: a question of the agent is a request with its options, or a form where it is more.
func acpChoice(t *testing.T, p *place) {
	option := func(label string) map[string]any {
		return map[string]any{"label": label, "description": "it is " + label}
	}
	question := func(header string, several bool) map[string]any {
		return map[string]any{"question": "Which " + header + "?", "header": header, "multiSelect": several,
			"options": []any{option("one"), option("two")}}
	}
	ask := func(list ...any) step { return calls("AskUserQuestion", map[string]any{"questions": list}) }
	m := p.model(map[string][]step{"main": {ask(question("port", false)), says("done"),
		ask(question("port", false), question("host", true)), says("done")}})
	e := p.edits(acp.ClientCapabilities{Elicitation: &acp.ElicitationCapabilities{Form: &acp.ElicitationFormCapabilities{}}})
	e.decide = always("option-2")
	id := e.opens()
	e.ends(id, "go")
	e.told("asked allow_once=one allow_once=two reject_once=No answer")
	if said := m.Requests()[1].LastText(); !strings.Contains(said, "two") || *e.asked[0].ToolCall.Title != "Which port?" {
		t.Errorf("the model was told %q", said)
	}
	e.ends(id, "go")
	e.told("form Which port?")
	if said := m.Requests()[3].LastText(); !strings.Contains(said, "port: one\nhost: one, two") {
		t.Errorf("the model was told %q", said)
	}
	e.leaves()
}
