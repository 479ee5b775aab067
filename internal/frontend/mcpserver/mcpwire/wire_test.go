package mcpwire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever comes is either messages or an answer that is one.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "{", "[]", "17", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"task":{"ttl":1},"_meta":null}}`,
		`[{"jsonrpc":"2.0","method":"x"},{"id":{}}]`, `{"id":"\u0000","jsonrpc":"1.0"}`, `{"jsonrpc":"2.0","id":-1.5,"result":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		msgs, _, refusal := Decode(bytes.TrimSpace(data))
		if (len(msgs) == 0) == (refusal == nil) {
			t.Fatalf("%d messages, refused with %s", len(msgs), refusal)
		}
		var answer struct {
			Version string `json:"jsonrpc"`
			Error   struct{ Code int64 }
		}
		if refusal != nil && (json.Unmarshal(refusal, &answer) != nil || answer.Version != "2.0" || answer.Error.Code == 0) {
			t.Fatalf("refused with %s", refusal)
		}
		for _, m := range msgs {
			Carry(m)
			if again := Carry(m); again {
				t.Fatalf("the field task is still there: %v", m)
			}
		}
	})
}

// The field task of a call goes on in _meta; other fields stay.
func TestCarry(t *testing.T) {
	msgs, _, refusal := Decode([]byte(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","_meta":{"a":1},"task":{"ttl":5}}}`))
	if refusal != nil || !Carry(msgs[0]) {
		t.Fatalf("%s", refusal)
	}
	var got mcp.CallToolParamsRaw
	req, _ := msgs[0].(*jsonrpc.Request)
	if err := json.Unmarshal(req.Params, &got); err != nil || got.Name != "n" || got.Meta["a"] != 1.0 || got.Meta[metaTask] == nil {
		t.Errorf("%v, %v", got, err)
	}
}

// A client that has closed its output and reads no input is given up.
func TestDeafClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, writer := io.Pipe() // nobody reads
		c, err := (&Lines{In: io.NopCloser(strings.NewReader("")), Out: writer}).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("the input ends with %v", err)
		}
		begun := time.Now()
		msg := &jsonrpc.Response{Result: json.RawMessage("{}")}
		if err := c.Write(context.Background(), msg); err == nil || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("written: %v", err)
		}
		if took := time.Since(begun); took != lastWrites {
			t.Errorf("given up after %s", took)
		}
		if err := errors.Join(c.Close(), stuck.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A long line is passed over, and the next one read.
func TestLongLine(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	var out bytes.Buffer
	c, err := (&Lines{In: io.NopCloser(strings.NewReader(strings.Repeat("x", MostBytes+1) + "\n" + ping)), Out: &out}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Read(t.Context())
	if req, ok := m.(*jsonrpc.Request); err != nil || !ok || req.Method != "ping" {
		t.Errorf("read %v, %v", m, err)
	}
	if !strings.Contains(out.String(), "longer than") {
		t.Errorf("answered %s", out.String())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Hosts and origins of other sites are refused, whatever the server listens at.
func TestForeign(t *testing.T) {
	for _, c := range []struct {
		listen, host, origin string
		ok                   bool
	}{
		{"127.0.0.1", "127.0.0.1:80", "", true},
		{"127.0.0.1", "localhost", "http://localhost:3000", true},
		{"::1", "[::1]:80", "http://[::1]:9", true},
		{"127.0.0.1", "evil.example", "", false},
		{"127.0.0.1", "localhost.evil.example", "", false},
		{"127.0.0.1", "127.0.0.1", "http://evil.example", false},
		{"127.0.0.1", "127.0.0.1", "null", false},
		{"127.0.0.1", "127.0.0.1", "file://localhost", false},
		{"0.0.0.0", "box.lan:80", "", true},
		{"0.0.0.0", "box.lan:80", "http://box.lan:80", true},
		{"0.0.0.0", "box.lan:80", "http://evil.example", false},
		{"192.168.1.5", "192.168.1.5:80", "", true},
		{"192.168.1.5", "box.lan", "", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		h := &httpHandler{HTTP: HTTP{Host: c.listen}}
		if why := h.foreign(r); (why == "") != c.ok {
			t.Errorf("%+v: %q", c, why)
		}
	}
}
