package modeltest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
)

// Fault is one way in which a call of a model goes wrong.
type Fault struct {
	Name   string
	Answer Answer
	Kind   string // of the [agent.ModelError] that it is; empty: the answer is odd, and whole all the same
	Again  bool   // it is worth another try
}

// Faults are the ways in which a call goes wrong whose answer should have been
// whole, which holds text and calls.
func Faults(api API, whole Answer) []Fault {
	f := faults{api: api, body: whole.StreamOf(api, "m")}
	f.half = f.body[:len(f.body)*2/3]
	f.connections()
	f.cuts()
	f.bodies()
	f.statuses()
	f.errors()
	f.streams()
	return f.all
}

type faults struct {
	api        API
	body, half []byte
	all        []Fault
}

func (f *faults) again(name, kind string, a Answer) {
	f.all = append(f.all, Fault{Name: name, Answer: a, Kind: kind, Again: true})
}

func (f *faults) final(name, kind string, a Answer) {
	f.all = append(f.all, Fault{Name: name, Answer: a, Kind: kind})
}

// connections end before the first byte of a body.
func (f *faults) connections() {
	f.again("end-before-head", "cut", Answer{NoHead: true})
	f.again("reset-before-head", "cut", Answer{NoHead: true, Reset: true})
	// as of a server that speaks something else
	f.final("half-status-line", "bad_answer", Answer{Wire: []byte("HTTP/1.1 20")})
	f.again("half-headers", "cut", Answer{Wire: []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event")})
	f.again("end-after-head", "cut", Answer{Raw: []byte{}, Break: true})
	f.again("reset-after-head", "cut", Answer{Raw: []byte{}, Break: true, Reset: true})
}

// cuts end a body behind each of its events and within some, by turns in order, with
// a broken connection, and with one that is reset.
func (f *faults) cuts() {
	end := len(f.body)
	if at := bytes.Index(f.body, []byte(`"finish_reason":"`)); at >= 0 { // all is said then
		end = at
	}
	cut := func(name string, at, n int) {
		a := Answer{Raw: f.body, CutAt: at, Cut: n%3 == 0, Break: n%3 > 0, Reset: n%3 == 1}
		f.again(name, "cut", a)
	}
	at := 0
	for n := 1; ; n++ {
		next := bytes.Index(f.body[at:], []byte("\n\n"))
		if next < 0 || at+next+2 >= end {
			return
		}
		if n%4 == 0 {
			cut(fmt.Sprintf("cut-within-event-%d", n), at+next/2, n)
		}
		at += next + 2
		cut(fmt.Sprintf("cut-behind-event-%d", n), at, n)
	}
}

// wire is an answer with headers of its own.
func wire(headers string, body []byte) Answer {
	return Answer{Wire: append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+headers+"\r\n\r\n"),
		body...)}
}

// bodies are packed or framed wrongly.
func (f *faults) bodies() {
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(f.half), f.half)
	f.again("length-too-long", "cut", wire(fmt.Sprintf("Content-Length: %d", len(f.body)+99), f.half))
	f.again("length-too-short", "cut", wire(fmt.Sprintf("Content-Length: %d", len(f.half)), f.body))
	f.again("chunk-of-no-size", "cut", wire("Transfer-Encoding: chunked", append(bytes.Clone(chunk), "zzz\r\n"...)))
	f.again("chunk-too-long", "cut", wire("Transfer-Encoding: chunked", append(bytes.Clone(chunk),
		"ffffffffffffffffff\r\n"...)))
	f.again("chunk-cut", "cut", wire("Transfer-Encoding: chunked", chunk[:len(chunk)-20]))

	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(f.body)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(err) // a buffer takes all
	}
	header := http.Header{"Content-Encoding": {"gzip"}}
	damaged := bytes.Clone(packed.Bytes())
	for i := len(damaged) / 2; i < len(damaged)/2+8; i++ {
		damaged[i] ^= 0xff
	}
	f.again("gzip-none", "cut", Answer{Raw: f.body, Header: header})
	f.again("gzip-cut", "cut", Answer{Raw: packed.Bytes()[:packed.Len()/2], Header: header})
	f.again("gzip-damaged", "cut", Answer{Raw: damaged, Header: header})

	f.final("page", "bad_answer", HTML(http.StatusOK, "<html>Sign in</html>"))
	f.final("no-stream", "bad_answer", Answer{ContentType: "application/json", Raw: []byte(`{"id":"m"}`)})
	f.final("empty", "bad_answer", Answer{Raw: []byte{}})
	f.final("redirect", "bad_answer", Answer{Status: http.StatusTemporaryRedirect, Raw: []byte{},
		Header: http.Header{"Location": {"https://elsewhere.example/"}}})
	f.final("no-http", "bad_answer", Answer{Wire: []byte("220 mail.example ESMTP\r\n")})
	f.final("too-large", "bad_answer", Answer{Raw: append(bytes.Clone(f.half), "data: "+strings.Repeat("z", 17<<20)...)})
}

func (f *faults) statuses() {
	for status, kind := range map[int]string{408: "server_error", 409: "server_error", 425: "server_error",
		429: "rate_limit", 500: "server_error",
		503: "server_error", 504: "server_error", 529: "overloaded"} {
		f.again(fmt.Sprintf("status-%d", status), kind, Error(status, "some_error", "not now"))
	}
	f.again("status-502-page", "server_error", HTML(http.StatusBadGateway, "<html>Bad gateway</html>"))
	soon := RateLimit("")
	soon.Header = http.Header{"Retry-After-Ms": {"20"}}
	f.again("status-429-when", "rate_limit", soon)
	for status, kind := range map[int]string{400: "bad_request", 401: "auth", 402: "account", 403: "auth",
		404: "unknown_model", 422: "bad_request"} {
		f.final(fmt.Sprintf("status-%d", status), kind, Error(status, "some_error", "no"))
	}
}

// errors are told in the middle of a stream.
func (f *faults) errors() {
	event := func(kind string) Answer {
		cut := bytes.LastIndex(f.half, []byte("\n\n")) + 2
		return Answer{Raw: append(bytes.Clone(f.half[:cut]), ErrorEvent(f.api, kind, "Sorry")...)}
	}
	for kind, ours := range map[string]string{"overloaded_error": "overloaded", "api_error": "server_error",
		"rate_limit_error": "rate_limit",
		"timeout_error":    "server_error", "later_error": "server_error"} {
		f.again("event-"+kind, ours, event(kind))
	}
	for kind, ours := range map[string]string{"invalid_request_error": "bad_request", "authentication_error": "auth",
		"permission_error": "auth",
		"not_found_error":  "unknown_model", "billing_error": "account"} {
		f.final("event-"+kind, ours, event(kind))
	}
}

// ErrorEvent is an error that an answer of status 200 tells in its stream.
func ErrorEvent(api API, kind, message string) []byte {
	switch api {
	case Messages:
		return fmt.Appendf(nil, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":%q,\"message\":%q}}\n\n", kind,
			message)
	case Chat:
		return fmt.Appendf(nil, "data: {\"error\":{\"type\":%q,\"message\":%q}}\n\n", kind, message)
	}
	return fmt.Appendf(
		nil,
		"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":%q,\"message\":%q}}}\n\n",
		kind,
		message,
	)
}

// streams break the rules of events, or come in an unusual form.
func (f *faults) streams() {
	events := strings.SplitAfter(string(f.body), "\n\n")
	events = events[:len(events)-1]
	with := func(at int, more string) Answer {
		return Answer{Raw: []byte(strings.Join(events[:at], "") + more + strings.Join(events[at:], ""))}
	}
	middle := len(events) / 2
	f.again("no-json", "cut", with(middle, "data: {oops\n\n"))
	f.again("half-line", "cut", with(middle, strings.TrimSpace(events[middle][:len(events[middle])/2])+"\n\n"))
	f.final("no-json-at-all", "bad_answer", Answer{Raw: []byte("data: hello\n\n")})
	if f.api == Messages {
		f.again("two-heads", "cut", with(middle, events[0]))
		f.again("no-stop-reason", "cut", Answer{Raw: bytes.ReplaceAll(f.body, []byte(`"stop_reason":"tool_use"`),
			[]byte(`"stop_reason":null`))})
		f.again(
			"delta-of-nothing",
			"cut",
			with(
				middle,
				"data: {\"type\":\"content_block_delta\",\"index\":77,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
			),
		)
	}
	f.final("bytes", "", Answer{Raw: f.body, Piece: 1})
	f.final("crlf", "", Answer{Raw: bytes.ReplaceAll(f.body, []byte("\n"), []byte("\r\n"))})
	f.final("comments", "", with(middle, ": still here\n\n"))
	f.final("unknown-event", "", with(middle, "event: later\ndata: {\"type\":\"later\"}\n\n"))
	f.final("no-usage", "", Answer{Raw: bytes.ReplaceAll(f.body, []byte(`"usage"`), []byte(`"x"`))})
}
