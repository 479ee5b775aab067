package mcpclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
)

// message is one message of either side.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *RPCError       `json:"error"`
}

// Frames that are not messages.
var (
	errJunk  = errors.New("no message of JSON-RPC")
	errBatch = errors.New("an array of messages")
	errEmpty = errors.New("an empty line")
)

// parse reads one frame: a line without its end, or a body.
func parse(frame []byte) (message, error) {
	frame = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(frame), []byte("\xef\xbb\xbf")))
	var m message
	switch {
	case len(frame) == 0:
		return m, errEmpty
	case frame[0] == '[' && json.Valid(frame):
		return m, errBatch
	case frame[0] != '{' || json.Unmarshal(frame, &m) != nil:
		return m, errJunk
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	answers := m.Result != nil || m.Error != nil
	if m.Method == "" && !answers || m.Method != "" && answers {
		return m, errJunk
	}
	return m, nil
}

// number returns the ID of an answer, if this client can have assigned it. Some
// servers send numbers back as text or as a fraction.
func number(id json.RawMessage) (int64, bool) {
	text := string(bytes.Trim(id, `"`))
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	return int64(f), err == nil && f == float64(int64(f)) && f > 0 && f < 1<<53
}

// answeredBy finds the call that a frame answers, from the beginning and the end of
// the frame: servers put the ID first or last.
func answeredBy(head, tail []byte) (int64, bool) {
	for _, part := range [][]byte{head, tail} {
		at := bytes.Index(part, []byte(`"id"`))
		if len(part) > 0 && &part[0] != &head[0] {
			at = bytes.LastIndex(part, []byte(`"id"`))
		}
		if at < 0 {
			continue
		}
		rest := bytes.TrimLeft(part[at+len(`"id"`):], " :\t")
		end := bytes.IndexAny(rest, ",} \t")
		if end < 0 {
			continue
		}
		if n, ok := number(rest[:end]); ok {
			return n, true
		}
	}
	return 0, false
}

type outgoing struct {
	Version string          `json:"jsonrpc"`
	ID      any             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *RPCError       `json:"error,omitempty"`
}

// encodeRequest makes the frame of a request, without a line end. It puts a token into
// _meta of the parameters.
func encodeRequest(id int64, method string, params any, token string,
	meta map[string]any) (raw json.RawMessage, frame []byte, err error) {
	if meta != nil {
		raw, err = encodeMeta(params, meta)
		params = raw
	}
	if err == nil {
		raw, err = encodeParams(params, token)
	}
	if err != nil {
		return nil, nil, err
	}
	frame, err = json.Marshal(outgoing{Version: "2.0", ID: id, Method: method, Params: raw})
	return raw, frame, err
}

func encodeNotification(method string, params any) ([]byte, error) {
	raw, err := encodeParams(params, "")
	if err != nil {
		return nil, err
	}
	return json.Marshal(outgoing{Version: "2.0", Method: method, Params: raw})
}

// encodeAnswer makes the frame of an answer. A result that cannot be encoded becomes
// an internal error.
func encodeAnswer(id json.RawMessage, result any, err error) []byte {
	out := outgoing{Version: "2.0", ID: id}
	if err == nil {
		out.Result, err = json.Marshal(result)
		if string(out.Result) == "null" {
			out.Result = json.RawMessage("{}")
		}
	}
	if err != nil {
		out.Result, out.Error = nil, &RPCError{Code: CodeInternal, Message: err.Error()}
		var rpc *RPCError
		if errors.As(err, &rpc) {
			out.Error = rpc
		}
	}
	frame, err := json.Marshal(out)
	if err != nil { // the data of an error, or the ID, is not JSON
		frame, _ = json.Marshal(outgoing{Version: "2.0", Error: &RPCError{Code: CodeInternal, Message: err.Error()}})
	}
	return frame
}

func encodeParams(params any, token string) (json.RawMessage, error) {
	if params == nil && token == "" {
		return nil, nil
	}
	if token == "" {
		return json.Marshal(params)
	}
	return encodeMeta(params, map[string]any{"progressToken": token})
}

// encodeMeta adds more to _meta of the parameters.
func encodeMeta(params any, more map[string]any) (json.RawMessage, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("parameters are no object: %w", err)
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	meta := map[string]any{}
	if fields["_meta"] != nil {
		if err := json.Unmarshal(fields["_meta"], &meta); err != nil {
			return nil, fmt.Errorf("_meta of the parameters is no object: %w", err)
		}
	}
	maps.Copy(meta, more)
	if fields["_meta"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
