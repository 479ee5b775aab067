package mcpwire

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// MetaTask is where in `_meta` of a call [Carry] leaves its field `task`.
const MetaTask = "drover/task"

const methodCall = "tools/call"

// Decode reads a message or an array of messages. If one is none, refusal answers it and
// there are no others.
func Decode(data []byte) (msgs []jsonrpc.Message, batch bool, refusal []byte) {
	if !json.Valid(data) {
		return nil, false, Refusal(nil, jsonrpc.CodeParseError, "this is no JSON")
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
			return nil, batch, Refusal(one.ID, jsonrpc.CodeInvalidRequest, "this is no message of JSON-RPC 2.0: "+err.Error())
		}
		msgs = append(msgs, m)
	}
	return msgs, batch, nil
}

// Refusal is an answer with an error to a message that cannot be handed on. id is null
// unless it is a number or a string.
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
		panic(err) // a fault of this package: all parts are valid JSON
	}
	return data
}

// Carry copies the field `task` of a tool call to [MetaTask] in its `_meta`: the protocol
// library does not know the field, and drops it. It reports whether it changed something.
func Carry(m jsonrpc.Message) bool {
	req, ok := m.(*jsonrpc.Request)
	if !ok || req.Method != methodCall || !bytes.Contains(req.Params, []byte(`"task"`)) {
		return false
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(req.Params, &params) != nil || params["task"] == nil {
		return false // the library says what is wrong with it
	}
	meta := map[string]json.RawMessage{}
	if raw, has := params["_meta"]; has && json.Unmarshal(raw, &meta) != nil {
		return false
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[MetaTask] = params["task"]
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
