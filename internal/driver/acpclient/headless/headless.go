// Package headless translates between the Agent Client Protocol (ACP, revision 1) and the protocols by
// which two vendors drive their own programs without a screen: stream-json of Claude Code, and the
// app-server of Codex. With it both run as agents on a machine that has no ACP bridge for them.
//
// A [Translator] is a pure state machine: messages in, messages out. It owns the IDs of the requests
// that it has passed on, and nothing else. It does no I/O, starts no program and decides nothing: a
// permission request of the program becomes session/request_permission of ACP, and the client answers it.
//
// A Translator keeps these parts of ACP: initialize, session/new, session/resume, session/set_model,
// session/set_mode, session/prompt, session/cancel, session/update and session/request_permission.
// It refuses every other request, and drops what the program reports about anything else.
package headless

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	acp "github.com/coder/acp-go-sdk"
)

// The protocols, as definitions of agents name them.
const (
	Claude = "claude" // of Claude Code 2.1: --input-format stream-json --output-format stream-json
	Codex  = "codex"  // of Codex 0.171: codex app-server
)

// Message is one message of JSON-RPC 2.0.
type Message struct {
	Version string            `json:"jsonrpc,omitempty"` // the app-server of Codex leaves it out
	ID      json.RawMessage   `json:"id,omitempty"`
	Method  string            `json:"method,omitempty"`
	Params  any               `json:"params,omitempty"`
	Result  any               `json:"result,omitempty"`
	Error   *acp.RequestError `json:"error,omitempty"`
}

// Codes of errors for the client; see the Agent Client Protocol.
const (
	codeAuth     = -32000
	codeNotFound = -32601
	codeInternal = -32603
)

// Step is the messages that follow from one message, in their order.
type Step struct {
	Program []any
	Client  []Message
}

// Translator is the state of one connection. One caller uses it at a time.
type Translator interface {
	// FromClient takes a message of ACP.
	FromClient(line []byte) Step
	// FromProgram takes a line of the program, which is a JSON object.
	FromProgram(line []byte) Step
}

// Start returns the arguments that start a program and the translator for it. session is the
// conversation that it continues, fresh the ID of a new one, a UUID, where session is empty.
func Start(protocol string, args []string, session, fresh string) ([]string, Translator, error) {
	switch protocol {
	case Claude:
		args = append(args[:len(args):len(args)], "-p", "--input-format", "stream-json", "--output-format", "stream-json",
			"--verbose", "--include-partial-messages", "--permission-prompt-tool", "stdio")
		if session != "" {
			return append(args, "--resume", session), newClaude(session), nil
		}
		return append(args, "--session-id", fresh), newClaude(fresh), nil
	case Codex:
		return append(args[:len(args):len(args)], "app-server"), newCodex(), nil
	}
	return nil, nil, fmt.Errorf("start the agent: the protocol %q is unknown (use %s, %s, or none for ACP)", protocol, Claude, Codex)
}

// request is a message of ACP as the translators read it.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Session string  `json:"sessionId"`
		Cwd     string  `json:"cwd"`
		Model   string  `json:"modelId"`
		Mode    string  `json:"modeId"`
		Prompt  []block `json:"prompt"`
	} `json:"params"`
	Result struct {
		Outcome struct {
			Outcome string `json:"outcome"`
			Option  string `json:"optionId"`
		} `json:"outcome"`
	} `json:"result"`
}

// allowed reports whether the client has allowed a permission request.
func (r request) allowed() bool {
	return r.Result.Outcome.Outcome == "selected" && r.Result.Outcome.Option == "allow"
}

// cancelled reports whether the client has ended the turn in place of an answer.
func (r request) cancelled() bool { return r.Result.Outcome.Outcome == "cancelled" }

// block is a block of a prompt.
type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
	MIME string `json:"mimeType"`
	Data string `json:"data"`
}

// object is a JSON object that a translator writes.
type object map[string]any

func answer(id json.RawMessage, result any) Message {
	return Message{Version: "2.0", ID: id, Result: result}
}

func refuse(id json.RawMessage, code int, format string, args ...any) Message {
	return Message{Version: "2.0", ID: id, Error: &acp.RequestError{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// initialized answers initialize.
func initialized(id json.RawMessage) Message {
	return answer(id, object{"protocolVersion": acp.ProtocolVersionNumber, "agentCapabilities": object{
		"promptCapabilities": object{"image": true}, "sessionCapabilities": object{"resume": object{}}}})
}

// opened answers session/new and session/resume.
func opened(id json.RawMessage, session string, models []object, modes []string) Message {
	var available []object
	for _, mode := range modes {
		available = append(available, object{"id": mode, "name": mode})
	}
	return answer(id, object{"sessionId": session, "models": object{"availableModels": models},
		"modes": object{"availableModes": available}})
}

// prompted answers session/prompt. The counts are tokens.
func prompted(id json.RawMessage, reason string, input, output, cachedRead, cachedWrite int64) Message {
	return answer(id, object{"stopReason": reason, "usage": object{"inputTokens": input, "outputTokens": output,
		"cachedReadTokens": cachedRead, "cachedWriteTokens": cachedWrite}})
}

// unsupported refuses a request of the client that translators do not have; a notification needs no answer.
func unsupported(r request) (s Step) {
	if r.ID != nil {
		s.Client = []Message{refuse(r.ID, codeNotFound, "%s is not supported", r.Method)}
	}
	return s
}

// update is a session/update.
func update(session, kind string, fields object) Message {
	fields["sessionUpdate"] = kind
	return Message{Version: "2.0", Method: "session/update", Params: object{"sessionId": session, "update": fields}}
}

// chunk is a piece of a message or a thought.
func chunk(session, kind, message, text string) Message {
	return update(session, kind, object{"messageId": message, "content": object{"type": "text", "text": text}})
}

// result is the end of a call of a tool.
func result(session, call string, failed bool, text string) Message {
	status := "completed"
	if failed {
		status = "failed"
	}
	return update(session, "tool_call_update", object{"toolCallId": call, "status": status,
		"content": []object{{"type": "content", "content": object{"type": "text", "text": text}}}})
}

// permission is a session/request_permission about a call, with the options that translators offer.
func permission(id json.RawMessage, session string, call object) Message {
	return Message{Version: "2.0", ID: id, Method: "session/request_permission", Params: object{
		"sessionId": session, "toolCall": call,
		"options": []object{
			{"optionId": "allow", "name": "Allow once", "kind": "allow_once"},
			{"optionId": "reject", "name": "Reject", "kind": "reject_once"},
		},
	}}
}

// numbers gives IDs to requests.
type numbers int

func (n *numbers) next() json.RawMessage {
	*n++
	return strconv.AppendInt(nil, int64(*n), 10)
}

// text is a value of JSON as text: a string as it is, else its encoding.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(bytes.TrimSpace(raw))
}
