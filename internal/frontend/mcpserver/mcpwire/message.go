package mcpwire

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// metaTask is the key in `_meta` of a call under which [Carry] puts the field `task`.
const metaTask = "drover/task"

const methodCall = "tools/call"

// Decode reads a message or an array of messages. For a faulty one it returns only the refusal to answer with.
func Decode(data []byte) (msgs []jsonrpc.Message, batch bool, refusal []byte) {
	if !json.Valid(data) {
		return nil, false, Refusal(nil, jsonrpc.CodeParseError, "the message is not JSON")
	}
	parts := []json.RawMessage{data}
	if data[0] == '[' {
		batch = true
		if err := json.Unmarshal(data, &parts); err != nil || len(parts) == 0 {
			return nil, true, Refusal(nil, jsonrpc.CodeInvalidRequest, "the list of messages is empty")
		}
	}
	for _, p := range parts {
		m, err := jsonrpc.DecodeMessage(p)
		if err != nil {
			var one struct {
				ID json.RawMessage `json:"id"`
			}
			_ = json.Unmarshal(p, &one) // without an ID, the answer has none
			return nil, batch, Refusal(one.ID, jsonrpc.CodeInvalidRequest, "not a message of JSON-RPC 2.0: "+err.Error())
		}
		msgs = append(msgs, m)
	}
	return msgs, batch, nil
}

// Refusal returns an error as the answer to a message. The ID is null unless id is a number or a string.
func Refusal(id json.RawMessage, code int64, message string) []byte {
	id = bytes.TrimSpace(id)
	if len(id) == 0 || len(id) > 1000 || !bytes.ContainsRune([]byte(`"-0123456789`), rune(id[0])) {
		id = json.RawMessage("null")
	}
	type wireError struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	data, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   wireError       `json:"error"`
	}{"2.0", id, wireError{code, message}})
	if err != nil {
		panic(err) // unreachable: all parts are valid JSON
	}
	return data
}

// Carry moves the field `task` of a tool call, which the protocol library drops, to [metaTask] in `_meta`. It reports
// whether the message has changed.
func Carry(m jsonrpc.Message) bool {
	req, ok := m.(*jsonrpc.Request)
	if !ok || req.Method != methodCall || !bytes.Contains(req.Params, []byte(`"task"`)) {
		return false
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(req.Params, &params) != nil || params["task"] == nil {
		return false // the library answers faulty parameters
	}
	meta := map[string]json.RawMessage{}
	if raw, has := params["_meta"]; has && json.Unmarshal(raw, &meta) != nil {
		return false
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[metaTask] = params["task"]
	delete(params, "task")
	var err error
	if params["_meta"], err = json.Marshal(meta); err != nil {
		return false
	}
	changed, err := json.Marshal(params)
	if err != nil {
		return false
	}
	req.Params = changed
	return true
}
