package headless

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	acp "github.com/coder/acp-go-sdk"
)

// codex translates the app-server protocol of Codex: JSON-RPC without a version field, in which a
// conversation is a thread and the work on one prompt a turn.
type codex struct {
	thread    string
	turn      string // under way; empty: none
	ids       numbers
	asked     map[string]sent            // by ID: requests of ours
	questions map[string]json.RawMessage // by the ID of the permission request: the ID of the program's request
	items     map[string]codexItem       // calls under way, which approvals name by ID
	prompt    json.RawMessage            // ID of the session/prompt under way; nil: none
	early     bool                       // the prompt was cancelled before its turn had an ID
	model     string                     // for the next turns; empty: the one of the thread
	mode      string                     // sandbox of the next turns; empty: as the user has configured it
	used      codexUsage                 // of the newest turn
}

// sent is a request to the program, and the request of the client that its answer answers.
type sent struct {
	method string
	id     json.RawMessage
}

func newCodex() *codex {
	return &codex{asked: map[string]sent{}, questions: map[string]json.RawMessage{}, items: map[string]codexItem{}}
}

// ask is a request to the program.
func (c *codex) ask(id json.RawMessage, method string, params object) any {
	own := c.ids.next()
	c.asked[string(own)] = sent{method, id}
	return Message{ID: own, Method: method, Params: params}
}

// FromClient implements [Translator].
func (c *codex) FromClient(line []byte) (s Step) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return Step{Client: []Message{refuse(nil, codeInternal, "read the message: %v", err)}}
	}
	switch r.Method {
	case "initialize":
		s.Program = append(s.Program, c.ask(r.ID, "initialize",
			object{"clientInfo": object{"name": "drover", "title": "Drover", "version": "1"}}))
	case "session/new":
		s.Program = append(s.Program, c.ask(r.ID, "thread/start", object{"cwd": r.Params.Cwd}))
	case "session/resume":
		s.Program = append(s.Program, c.ask(r.ID, "thread/resume", object{"threadId": r.Params.Session, "cwd": r.Params.Cwd}))
	case "session/set_model":
		c.model = r.Params.Model
		s.Client = append(s.Client, answer(r.ID, object{}))
	case "session/set_mode":
		c.mode = r.Params.Mode
		s.Client = append(s.Client, answer(r.ID, object{}))
	case "session/prompt":
		params := object{"threadId": c.thread, "input": codexContent(r.Params.Prompt)}
		if c.model != "" {
			params["model"] = c.model
		}
		if policy := sandboxes()[c.mode]; policy != "" {
			params["sandboxPolicy"], params["approvalPolicy"] = object{"type": policy}, "on-request"
		}
		c.prompt, c.turn, c.early = r.ID, "", false
		s.Program = append(s.Program, c.ask(nil, "turn/start", params))
	case "session/cancel":
		if c.turn == "" {
			c.early = true
			return s
		}
		s.Program = append(s.Program, c.interrupt())
	case "":
		if own, open := c.questions[string(r.ID)]; open {
			delete(c.questions, string(r.ID))
			s.Program = append(s.Program, Message{ID: own, Result: object{"decision": decision(r)}})
		}
	default:
		return unsupported(r)
	}
	return s
}

// sandboxes are the modes of a conversation and the sandbox of Codex that each means. In all of them
// it asks before it leaves its sandbox.
func sandboxes() map[string]string {
	return map[string]string{
		"read-only": "readOnly", "workspace-write": "workspaceWrite", "danger-full-access": "dangerFullAccess",
	}
}

func (c *codex) interrupt() any {
	return c.ask(nil, "turn/interrupt", object{"threadId": c.thread, "turnId": c.turn})
}

// decision is an answer of the client as Codex has it: with decline the turn continues.
func decision(r request) string {
	switch {
	case r.allowed():
		return "accept"
	case r.cancelled():
		return "cancel"
	}
	return "decline"
}

func codexContent(prompt []block) (out []object) {
	for _, b := range prompt {
		switch b.Type {
		case "text":
			out = append(out, object{"type": "text", "text": b.Text})
		case "image":
			out = append(out, object{"type": "image", "url": "data:" + b.MIME + ";base64," + b.Data})
		}
	}
	return out
}

// codexLine is a message of the program, with the fields of all methods.
type codexLine struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Thread  string    `json:"threadId"`
		ItemID  string    `json:"itemId"`
		Item    codexItem `json:"item"`
		Delta   string    `json:"delta"`
		Command string    `json:"command"` // of an approval
		Cwd     string    `json:"cwd"`
		Reason  string    `json:"reason"`
		Turn    codexTurn `json:"turn"`
		Usage   struct {
			Last codexUsage `json:"last"`
		} `json:"tokenUsage"`
		Plan []struct {
			Step   string `json:"step"`
			Status string `json:"status"`
		} `json:"plan"`
	} `json:"params"`
	Result struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
		Turn   codexTurn `json:"turn"`
		Models []struct {
			ID   string `json:"id"`
			Name string `json:"displayName"`
		} `json:"data"`
	} `json:"result"`
	Error *acp.RequestError `json:"error"`
}

type codexTurn struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Error  *struct {
		Message string          `json:"message"`
		Info    json.RawMessage `json:"codexErrorInfo"`
	} `json:"error"`
}

type codexUsage struct {
	Input      int64 `json:"inputTokens"`
	Cached     int64 `json:"cachedInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
	Output     int64 `json:"outputTokens"`
}

// codexItem is a piece of a turn: a message, or the call of a tool.
type codexItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Command   string          `json:"command"`
	Cwd       string          `json:"cwd"`
	Output    string          `json:"aggregatedOutput"`
	Changes   []codexChange   `json:"changes"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Query     string          `json:"query"`
}

type codexChange struct {
	Path string `json:"path"`
	Kind struct {
		Type string `json:"type"`
		To   string `json:"move_path"`
	} `json:"kind"`
}

// call returns an item in terms of ACP; nil: it is not a call.
func (i codexItem) call() object {
	out := object{"toolCallId": i.ID}
	switch i.Type {
	case "commandExecution":
		out["kind"], out["title"], out["rawInput"] = "execute", i.Command, object{"command": i.Command, "cwd": i.Cwd}
	case "fileChange":
		kind, changes := "edit", object{}
		for _, c := range i.Changes {
			if c.Kind.Type == "delete" {
				kind = "delete"
			} else if c.Kind.To != "" && kind == "edit" {
				kind = "move"
			}
			changes[c.Path] = object{"move_path": c.Kind.To}
		}
		out["kind"], out["title"], out["rawInput"] = kind, "change files", object{"changes": changes}
	case "mcpToolCall", "dynamicToolCall":
		out["kind"], out["title"], out["rawInput"] = "other", strings.Trim(i.Server+" "+i.Tool, " "), i.Arguments
	case "webSearch":
		out["kind"], out["title"], out["rawInput"] = "fetch", "search the web: "+i.Query, object{"query": i.Query}
	default:
		return nil
	}
	return out
}

// FromProgram implements [Translator].
func (c *codex) FromProgram(line []byte) (s Step) {
	var l codexLine
	if json.Unmarshal(line, &l) != nil { // a newer form of a message: the conversation continues without it
		return s
	}
	switch {
	case l.Method == "":
		return c.answered(l)
	case l.ID != nil:
		return c.asks(l)
	case c.thread == "" || l.Params.Thread != c.thread: // of no thread, or of an agent that this one has started
		return s
	}
	switch p := l.Params; l.Method {
	case "item/agentMessage/delta":
		s.Client = []Message{chunk(c.thread, "agent_message_chunk", p.ItemID, p.Delta)}
	case "item/reasoning/summaryTextDelta":
		s.Client = []Message{chunk(c.thread, "agent_thought_chunk", p.ItemID, p.Delta)}
	case "item/started":
		if call := p.Item.call(); call != nil {
			c.items[p.Item.ID] = p.Item
			call["status"] = "in_progress"
			s.Client = []Message{update(c.thread, "tool_call", call)}
		}
	case "item/completed":
		delete(c.items, p.Item.ID)
		if p.Item.call() != nil {
			s.Client = []Message{result(c.thread, p.Item.ID, p.Item.Status != "completed", p.Item.Output)}
		}
	case "turn/plan/updated":
		entries := make([]object, len(p.Plan))
		for i, e := range p.Plan {
			entries[i] = object{"content": e.Step, "status": strings.ReplaceAll(e.Status, "inProgress", "in_progress")}
		}
		s.Client = []Message{update(c.thread, "plan", object{"entries": entries})}
	case "thread/tokenUsage/updated":
		c.used = p.Usage.Last
	case "turn/completed":
		s.Client = c.ended(p.Turn)
	}
	return s
}

// answered takes the answer to a request of ours.
func (c *codex) answered(l codexLine) (s Step) {
	ours, ok := c.asked[string(l.ID)]
	if !ok {
		return s
	}
	delete(c.asked, string(l.ID))
	switch {
	case l.Error != nil && ours.method == "turn/start":
		s.Client = c.fail(l.Error.Message, nil)
	case ours.method == "model/list": // without a list the program chooses
		var models []object
		for _, m := range l.Result.Models {
			models = append(models, object{"modelId": m.ID, "name": m.Name})
		}
		s.Client = []Message{opened(ours.id, c.thread, models, slices.Sorted(maps.Keys(sandboxes())))}
	case l.Error != nil && ours.id != nil:
		s.Client = []Message{refuse(ours.id, codeInternal, "%s", l.Error.Message)}
	case ours.method == "initialize":
		s.Program = []any{Message{Method: "initialized"}}
		s.Client = []Message{initialized(ours.id)}
	case ours.method == "thread/start" || ours.method == "thread/resume":
		c.thread = l.Result.Thread.ID
		s.Program = []any{c.ask(ours.id, "model/list", object{})}
	case ours.method == "turn/start" && c.prompt != nil:
		if c.turn = l.Result.Turn.ID; c.early {
			s.Program = []any{c.interrupt()}
		}
	}
	return s
}

// asks passes on an approval, and refuses other requests of the program.
func (c *codex) asks(l codexLine) (s Step) {
	item, known := c.items[l.Params.ItemID]
	switch l.Method {
	case "item/commandExecution/requestApproval":
		item.Type, item.ID = "commandExecution", l.Params.ItemID
		item.Command, item.Cwd = cmp.Or(l.Params.Command, item.Command), cmp.Or(l.Params.Cwd, item.Cwd)
	case "item/fileChange/requestApproval":
		if !known {
			item = codexItem{Type: "fileChange", ID: l.Params.ItemID}
		}
	default:
		no := refuse(l.ID, codeNotFound, "%s is not supported", l.Method)
		no.Version = "" // the app-server has no version field
		s.Program = []any{no}
		return s
	}
	id := c.ids.next()
	c.questions[string(id)] = l.ID
	call := item.call()
	call["status"] = "pending"
	s.Client = []Message{permission(id, c.thread, call)}
	return s
}

// ended answers the prompt.
func (c *codex) ended(t codexTurn) []Message {
	clear(c.items)
	if c.prompt == nil || c.turn != "" && t.ID != c.turn {
		return nil
	}
	if t.Status == "failed" && t.Error != nil {
		return c.fail(t.Error.Message, t.Error.Info)
	}
	id := c.prompt
	c.prompt, c.turn = nil, ""
	reason := "end_turn"
	if t.Status == "interrupted" {
		reason = "cancelled"
	}
	u := c.used
	return []Message{prompted(id, reason, max(0, u.Input-u.Cached), u.Output, u.Cached, u.CacheWrite)}
}

// fail answers the prompt with an error.
func (c *codex) fail(message string, info json.RawMessage) []Message {
	id := c.prompt
	c.prompt, c.turn = nil, ""
	if id == nil {
		return nil
	}
	code := codeInternal
	if text(info) == "unauthorized" {
		code = codeAuth
	}
	return []Message{refuse(id, code, "%s", message)}
}
