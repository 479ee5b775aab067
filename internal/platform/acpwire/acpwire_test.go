package acpwire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	maxLine     = 64 << 20
	maxRequests = 256
)

// options are those of a connection that answers faults.
func options(begin func(string, json.RawMessage) (Work, error), warn func(string, ...any)) Options {
	return Options{MaxLine: maxLine, MaxRequests: maxRequests, Begin: begin, Warn: warn, Fault: func(Fault) bool { return true }}
}

// exchange gives a connection what a client writes, and returns what it has answered.
func exchange(t testing.TB, in io.Reader, begin func(string, json.RawMessage) (Work, error)) (lines []string, warned string) {
	t.Helper()
	var out, warn bytes.Buffer
	c := New(in, &out, options(begin, func(format string, args ...any) { fmt.Fprintf(&warn, format+"\n", args...) }))
	if err := c.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %q", line)
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, warn.String()
}

// echo answers with the name of the method, and notifications with an error.
func echo(method string, _ json.RawMessage) (Work, error) {
	if method == "refused" {
		return nil, errors.New("not today")
	}
	return func(context.Context) (any, error) { return map[string]string{"method": method}, nil }, nil
}

// Every message that cannot be handled has one answer that says why, with its ID where it has
// one; what stands around it is handled.
func TestBadMessages(t *testing.T) {
	for in, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"a"}`:       `{"jsonrpc":"2.0","id":1,"result":{"method":"a"}}`,
		`{"jsonrpc":"2.0","id":"x","method":"a"}`:     `{"jsonrpc":"2.0","id":"x","result":{"method":"a"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"refused"}`: `"id":1,"error":{"code":-32603,"message":"not today"}`,
		`garbage`:                       `"id":null,"error":{"code":-32700,"message":"the line is not JSON`,
		`{"jsonrpc":"2.0","id":1,"meth`: `"id":null,"error":{"code":-32700`,
		"\xff\xfe":                      `"code":-32700`,
		`[{"jsonrpc":"2.0","id":1,"method":"a"}]`: `"id":null,"error":{"code":-32600`,
		`7`:                        `"code":-32600`,
		`null`:                     `"code":-32600`,
		`{}`:                       `"the message has neither method nor id"`,
		`{"id":1,"method":7}`:      `"id":1,"error":{"code":-32600`,
		`{"id":{},"method":"a"}`:   `"the id is neither a string nor a number"`,
		`{"id":null,"method":"a"}`: `{"jsonrpc":"2.0","id":null,"result":{"method":"a"}}`,
		`{"method":"note"}`:        "",
		`{"id":5,"result":{}}`:     "",
		`{"id":"5","error":{"code":1,"message":""}}`: "",
		`{"method":"$/cancel_request"}`:              "",
		`{"method":"$/cancel_request","params":7}`:   "",
		"   ": "",
	} {
		got, _ := exchange(t, strings.NewReader(in+"\n"), echo)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	got, warned := exchange(t, strings.NewReader("\n\ngarbage\n"+`{"id":9,"result":1}`+"\n"+`{"id":1,"method":"last"}`), echo)
	if len(got) != 2 || !strings.Contains(got[1], "last") || !strings.Contains(warned, "no request has the id 9") {
		t.Errorf("%q, %q", got, warned)
	}
}

// A message that is too long is refused by its ID, and the next one is handled.
func TestLongMessage(t *testing.T) {
	long := func(head string) io.Reader {
		return io.MultiReader(strings.NewReader(head), io.LimitReader(endless{}, maxLine), strings.NewReader("\"}\n"+
			`{"id":2,"method":"next"}`+"\n"))
	}
	for head, want := range map[string]string{`{"jsonrpc":"2.0","id":"big","method":"`: `"id":"big"`, `{"method":"`: `"id":null`} {
		got, _ := exchange(t, long(head), echo)
		if len(got) != 2 || !strings.Contains(got[0], want) || !strings.Contains(got[0], "longer than 64 MiB") ||
			!strings.Contains(got[1], `"id":2,"result"`) {
			t.Errorf("%s: %.300q", head, got)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Requests begin in the order in which they arrive, and an ID is used once at a time.
func TestOrder(t *testing.T) {
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, "{\"id\":%d,\"method\":\"%d\"}\n", i, i)
	}
	var order []string
	got, _ := exchange(t, strings.NewReader(in.String()), func(method string, _ json.RawMessage) (Work, error) {
		order = append(order, method)
		return func(context.Context) (any, error) { return nil, nil }, nil
	})
	for i, method := range order {
		if method != fmt.Sprint(i) {
			t.Fatalf("begun in the order %q", order)
		}
	}
	if len(got) != 100 || len(order) != 100 {
		t.Errorf("%d answers to %d requests", len(got), len(order))
	}
	wait := func(string, json.RawMessage) (Work, error) {
		return func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, context.Cause(ctx) }, nil
	}
	got, _ = exchange(t, strings.NewReader(`{"id":1,"method":"a"}`+"\n"+`{"id":1,"method":"b"}`+"\n"+
		`{"id":2,"method":"c"}`+"\n"+`{"method":"$/cancel_request","params":{"requestId":2}}`+"\n"), wait)
	if all := strings.Join(got, "\n"); len(got) != 3 || !strings.Contains(all, "a request with this id is open") ||
		!strings.Contains(all, `"id":2,"error":{"code":-32800`) {
		t.Errorf("%s", all)
	}
	in.Reset()
	for i := range maxRequests + 1 {
		fmt.Fprintf(&in, "{\"id\":%d,\"method\":\"a\"}\n", i)
	}
	got, _ = exchange(t, strings.NewReader(in.String()), wait)
	if len(got) != maxRequests+1 || !strings.Contains(got[0], fmt.Sprintf(`"id":%d,`, maxRequests)) ||
		!strings.Contains(got[0], "requests are open") {
		t.Errorf("%d answers, the first %q", len(got), got[0])
	}
}

// stuck is a client that reads nothing.
type stuck struct{ end chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.end
	return len(p), nil
}

// A client that reads nothing and leaves holds nobody up for long.
func TestStuckClient(t *testing.T) {
	end := make(chan struct{})
	in, out := io.Pipe()
	c := New(in, stuck{end}, options(echo, t.Logf))
	served := make(chan error, 1)
	go func() { served <- c.Serve(t.Context()) }()
	for range maxQueued + 1 {
		c.Notify("session/update", 1)
	}
	told := make(chan struct{})
	go func() { c.Notify("session/update", 2); close(told) }() // there is no room
	out.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	<-told
	c.Close()
	close(end)
	<-c.out.done
}

// FuzzConn gives the reader any bytes: it ends, answers in JSON, and answers requests once.
func FuzzConn(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"a"}` + "\n" + `{"id":1,"method":"b","params":[]}`))
	f.Add([]byte("\n{}\n[]\n\"\n{\"id\":{}}\n{\"id\":\"\\ud800\",\"method\":\"\"}\n"))
	f.Add([]byte(`{"method":"$/cancel_request","params":{"requestId":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		begun := 0
		lines, _ := exchange(t, bytes.NewReader(data), func(method string, _ json.RawMessage) (Work, error) {
			return func(context.Context) (any, error) { return nil, nil }, nil
		})
		for range bytes.Lines(data) {
			begun++
		}
		if len(lines) > begun {
			t.Errorf("%d answers to %d lines", len(lines), begun)
		}
	})
}

// A request that is asked has its answer even if the input ends after it, an error as an [AnswerError], and the
// end of the connection as [ErrClosed].
func TestAsk(t *testing.T) {
	in, peer := io.Pipe()
	reader, out := io.Pipe()
	c := New(in, out, options(echo, t.Logf))
	served := make(chan error, 1)
	go func() { served <- c.Serve(t.Context()) }()
	go func() {
		d := json.NewDecoder(reader)
		for range 3 {
			var m map[string]any
			if d.Decode(&m) != nil {
				return
			}
			switch m["method"] {
			case "good":
				fmt.Fprintln(peer, `{"id":1,"result":{"n":7}}`)
			case "bad":
				fmt.Fprintln(peer, `{"id":2,"error":{"code":-32000,"message":"sign  in","data":{"at":1}}}`)
			case "last":
				peer.Close()
			}
		}
	}()
	var got struct{ N int }
	if err := c.Ask(t.Context(), "good", nil, &got); err != nil || got.N != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	var refused *AnswerError
	if err := c.Ask(t.Context(), "bad", nil, nil); !errors.As(err, &refused) || refused.Code != -32000 ||
		err.Error() != `bad was refused: sign in {"at":1} (code -32000)` {
		t.Error(err)
	}
	if err := c.Ask(t.Context(), "last", nil, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	c.Close()
}

// An answer counts although the connection ends right after it. One after a fault that ends the connection does not.
func TestLastAnswer(t *testing.T) {
	for range 100 {
		for before, counts := range map[string]bool{"": true, "fault\n": false} {
			in, peer := io.Pipe()
			reader, out := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			o := options(echo, nil)
			o.Fault = func(Fault) bool { cancel(); return false }
			c := New(in, out, o)
			served := make(chan error, 1)
			go func() { served <- c.Serve(ctx) }()
			go func() {
				_, _ = io.CopyN(io.Discard, reader, 10)
				_, _ = io.WriteString(peer, before+`{"id":1,"result":{}}`)
				peer.Close()
				_, _ = io.Copy(io.Discard, reader)
			}()
			if err := c.Ask(t.Context(), "last", nil, nil); (err == nil) != counts {
				t.Fatalf("after %q: %v", before, err)
			}
			<-served
			in.Close()
			c.Close()
			reader.Close()
			cancel()
		}
	}
}
