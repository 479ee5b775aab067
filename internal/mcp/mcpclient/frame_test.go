package mcpclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestParseFrame(t *testing.T) {
	for in, want := range map[string]error{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:            nil,
		"\xef\xbb\xbf{\"id\":1,\"error\":{\"code\":1}}\r": nil,
		`{"method":"x"}`:                   nil,
		`{"id":"a","method":"x"}`:          nil,
		"":                                 errEmpty,
		" \r":                              errEmpty,
		"[1]":                              errBatch,
		"[info] x":                         errJunk,
		"{":                                errJunk,
		"{}":                               errJunk,
		`{"id":1}`:                         errJunk,
		`{"id":1,"method":"x","result":1}`: errJunk,
		`"x"`:                              errJunk,
		`{"id":1,"result":` + strings.Repeat("[", 20_000): errJunk,
	} {
		if _, err := parse([]byte(in)); !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", in, err, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[string]int64{"7": 7, `"7"`: 7, "7.0": 7, "7.5": 0, "null": 0, "": 0, `"p7"`: 0, "1e300": 0} {
		if got, ok := number(json.RawMessage(in)); got != want && ok || ok != (want > 0) {
			t.Errorf("%s: %d, %v", in, got, ok)
		}
	}
}

func TestAnsweredBy(t *testing.T) {
	for _, c := range []struct {
		head, tail string
		want       int64
	}{
		{`{"jsonrpc":"2.0","id":12,"result":{"content":[`, `xxx"}]}}`, 12},
		{`{"result":{"content":[{"text":"xxx`, `xx"}]},"jsonrpc":"2.0","id":13}`, 13},
		{`{ "id" : 14 , "result":`, ``, 14},
		{`{"result":`, `"}`, 0},
	} {
		if got, ok := answeredBy([]byte(c.head), []byte(c.tail)); got != c.want || ok != (c.want > 0) {
			t.Errorf("%s … %s: %d, %v", c.head, c.tail, got, ok)
		}
	}
}

func TestEncodeParams(t *testing.T) {
	for _, c := range []struct {
		params any
		token  string
		want   string
	}{
		{nil, "", ""},
		{map[string]any{"a": 1}, "", `{"a":1}`},
		{nil, "t", `{"_meta":{"progressToken":"t"}}`},
		{json.RawMessage(`{"_meta":{"k":1.0}}`), "t", `{"_meta":{"k":1,"progressToken":"t"}}`},
	} {
		if got, err := encodeParams(c.params, c.token); err != nil || string(got) != c.want {
			t.Errorf("%v, %s: %s, %v, want %s", c.params, c.token, got, err, c.want)
		}
	}
	if _, err := encodeParams([]int{1}, "t"); err == nil {
		t.Error("a list has taken a token")
	}
}

func TestLines(t *testing.T) {
	in := "a\r\n\n" + strings.Repeat("x", 100_000) + "id\n" + "end"
	m := &meter{most: 1 << 20}
	l := newLines(strings.NewReader(in), 10_000, m)
	for i, want := range []string{"a", "", strings.Repeat("x", edge), "end"} {
		one, err := l.next()
		if err != nil || string(one.data) != want || one.long != (i == 2) {
			t.Errorf("line %d: %d bytes, %v, %v", i, len(one.data), one.long, err)
		}
		if i == 2 && (len(one.tail) != edge || !bytes.HasSuffix(one.tail, []byte("xid\n"))) {
			t.Errorf("the tail is %d bytes", len(one.tail))
		}
	}
	if _, err := l.next(); !errors.Is(err, io.EOF) || m.used.Load() != 0 {
		t.Errorf("the end: %v, %d bytes counted", err, m.used.Load())
	}
	l = newLines(endless('x'), 10_000, m)
	if _, err := l.next(); !errors.Is(err, errMeter) || cap(l.buf) > 100_000 {
		t.Errorf("a line without an end: %v, %d bytes kept", err, cap(l.buf))
	}
}

func TestRing(t *testing.T) {
	var r ring
	for range 100 {
		_, _ = r.Write([]byte(strings.Repeat("x", 1000)))
	}
	_, _ = r.Write([]byte(strings.Repeat("y", saidKept*2) + "z"))
	if got := r.String(); len(got) != saidKept || !strings.HasSuffix(got, "yz") {
		t.Errorf("%d bytes are kept", len(got))
	}
}

// Whatever a server prints, a frame is a message with one meaning or none, and a
// line of it is bounded.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n[info]\n"))
	f.Add([]byte("\xef\xbb\xbf{\"id\":\"x\",\"method\":\"m\",\"params\":{}}\r\n\r\n"))
	f.Add([]byte("data: {}\n\nid: 1\nretry: 99999999999999999999\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &meter{most: 1 << 20}
		l := newLines(bytes.NewReader(data), 64, m)
		for {
			one, err := l.next()
			if err != nil {
				break
			}
			if len(one.data) > edge || len(one.tail) > edge {
				t.Fatalf("a line of %d and %d bytes", len(one.data), len(one.tail))
			}
			if msg, err := parse(one.data); err == nil && (msg.Method == "") == (msg.Result == nil && msg.Error == nil) {
				t.Fatalf("%q is both or neither", one.data)
			}
			answeredBy(one.data, one.tail)
		}
		if l.done(); m.used.Load() != 0 {
			t.Fatalf("%d bytes are still counted", m.used.Load())
		}
		e := newEvents(bytes.NewReader(data), 64, m)
		for {
			got, err := e.next()
			if err != nil {
				break
			}
			if len(got) > 64 || e.retry < 0 || e.retry > maxRetry {
				t.Fatalf("an event of %d bytes, %v", len(got), e.retry)
			}
		}
	})
}
