package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	fast "github.com/segmentio/encoding/json"

	"github.com/drover-dev/drover/task"
)

// The version of the protocol between client and server. A change that an older side would
// misread needs a new number.
const (
	Protocol       = "1"
	protocolHeader = "Drover-Protocol"
)

// Limits of a request in bytes. Requests that start something, or have a prompt, may be larger.
const (
	maxBody      = 16 << 20
	maxSmallBody = 4 << 20
)

// startBody is a batch of starts. Env applies to the tasks without their own: 10,000 copies of
// a common environment would be most of the request.
type startBody struct {
	Env   []string       `json:"env,omitempty"`
	Tasks []StartRequest `json:"tasks"`
}

// newStartBody moves a common environment out of the requests.
func newStartBody(reqs []StartRequest) startBody {
	if len(reqs) < 2 || len(reqs[0].Env) == 0 {
		return startBody{Tasks: reqs}
	}
	env := reqs[0].Env
	for _, r := range reqs[1:] {
		if !slices.Equal(env, r.Env) {
			return startBody{Tasks: reqs}
		}
	}
	reqs = slices.Clone(reqs)
	for i := range reqs {
		reqs[i].Env = nil
	}
	return startBody{Env: env, Tasks: reqs}
}

func (b startBody) requests() []StartRequest {
	for i := range b.Tasks {
		if len(b.Tasks[i].Env) == 0 {
			b.Tasks[i].Env = b.Env
		}
	}
	return b.Tasks
}

// pauseBody names what to pause.
type pauseBody struct {
	Refs []string `json:"refs"`
}

// holdBody requests a lease.
type leaseBody struct {
	Lease string `json:"lease"`
}

// errorBody is the answer to a failed request.
type errorBody struct {
	Error *Error `json:"error"`
}

// status returns the HTTP status for a code; clients use the code.
func (c Code) status() int {
	switch c {
	case NotFound:
		return http.StatusNotFound
	case Ambiguous, Conflict:
		return http.StatusConflict
	case Invalid:
		return http.StatusBadRequest
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// encoder writes JSON values, one a line, without escaping for HTML.
func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	err := encoder(&buf).Encode(v)
	return buf.Bytes(), err
}

// decodeStrict reads exactly one JSON value up to the end of r. Reading to the end also lets
// the HTTP server detect a disconnect.
func decodeStrict(r io.Reader, into any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// encodeSlice writes a JSON array element by element as a function makes them, so that a long
// one is never completely in memory.
func encodeSlice[T any](w io.Writer, enc *json.Encoder, items []T, as func(T) T) error {
	if _, err := io.WriteString(w, "[\n"); err != nil {
		return err
	}
	for i := range items {
		if i > 0 {
			if _, err := io.WriteString(w, ","); err != nil {
				return err
			}
		}
		item := as(items[i])
		if err := enc.Encode(&item); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "]")
	return err
}

// encodePage writes a [Page] record by record, each in its shown form.
func encodePage(w io.Writer, p Page, as func(task.Record) task.Record) error {
	if _, err := io.WriteString(w, `{"tasks":`); err != nil {
		return err
	}
	if err := encodeSlice(w, encoder(w), p.Tasks, as); err != nil {
		return err
	}
	if p.Next != 0 {
		if _, err := fmt.Fprintf(w, `,"next":%d`, p.Next); err != nil {
			return err
		}
	}
	if p.Problem != "" {
		text, err := json.Marshal(p.Problem)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, `,"problem":%s`, text); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "}\n")
	return err
}

// pageStart is the first line of [encodePage]; each record follows on a line of its own.
const pageStart = `{"tasks":[` + "\n"

// decodePage reads a [Page] record by record while the other side still writes. JSON in another
// layout than that of [encodePage] is read as a whole.
func decodePage(r io.Reader) (Page, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	start, err := in.Peek(len(pageStart))
	switch {
	case err != nil:
		return decodeAny(io.MultiReader(bytes.NewReader(start), ended{err}))
	case string(start) != pageStart:
		return decodeAny(in)
	}
	_, _ = in.Discard(len(pageStart)) // it is there
	first, line, err := decodeLines(in)
	head, rest := pageStart, io.Reader(in)
	if len(first) > 0 {
		head += "{}" // in their place
	}
	if err != nil {
		rest = ended{err}
	}
	p, err := decodeAny(io.MultiReader(strings.NewReader(head), bytes.NewReader(line), rest))
	if len(first) > 0 && len(p.Tasks) > 0 {
		p.Tasks = append(first, p.Tasks[1:]...)
	}
	return p, err
}

// decodeLines reads lines that are records, and returns the first that is not.
func decodeLines(in *bufio.Reader) (tasks []task.Record, line []byte, err error) {
	for {
		line, err = in.ReadBytes('\n')
		record, comma := bytes.CutPrefix(line, []byte(","))
		var t task.Record
		if err != nil || comma != (len(tasks) > 0) || decodeRecord(record, &t) != nil {
			return tasks, line, err
		}
		tasks = append(tasks, t)
	}
}

// mostDeep is less than the nesting depth that [encoding/json] accepts. The fast decoder has no
// limit and overflows the stack.
const mostDeep = 9000

// decodeRecord decodes a record without deep nesting with the fast decoder, which rejects what
// [encoding/json] rejects, except another separator within a time.
func decodeRecord(data []byte, to *task.Record) error {
	if bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("[")) > mostDeep {
		return json.Unmarshal(data, to)
	}
	return fast.Unmarshal(data, to)
}

// ended is a reader at its end.
type ended struct{ err error }

func (e ended) Read([]byte) (int, error) { return 0, e.err }

func decodeAny(r io.Reader) (Page, error) {
	p := Page{Tasks: []task.Record{}}
	dec := json.NewDecoder(r)
	if err := expect(dec, json.Delim('{')); err != nil {
		return p, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return p, err
		}
		switch key {
		case "tasks":
			err = decodeSlice(dec, &p.Tasks)
		case "next":
			err = dec.Decode(&p.Next)
		case "problem":
			err = dec.Decode(&p.Problem)
		default: // of a newer server
			var skip json.RawMessage
			err = dec.Decode(&skip)
		}
		if err != nil {
			return p, err
		}
	}
	return p, expect(dec, json.Delim('}'))
}

func decodeSlice[T any](dec *json.Decoder, into *[]T) error {
	if err := expect(dec, json.Delim('[')); err != nil {
		return err
	}
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			return err
		}
		*into = append(*into, v)
	}
	return expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("unexpected %v in place of %v", got, want)
	}
	return nil
}
