package records

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// encode writes as logs and answers do.
func encode(t testing.TB, r task.Record) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// fill gives every field a value of its own, and every list two.
func fill(v reflect.Value, n *int) {
	*n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(int64(*n), 123456789).UTC()))
		return
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"a":["b\"}",{}]}`))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("täsk \"\\\n\u2028 <&> " + strings.Repeat("x", *n%7))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic("no value of type " + v.Type().String())
	}
}

func same(t *testing.T, data []byte) {
	t.Helper()
	var want task.Record
	got := task.Record{Name: "replaced", Cause: &task.Cause{Detail: "replaced"}}
	wantErr, gotErr := json.Unmarshal(data, &want), Read(data, &got)
	if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nis read as\n%+v, %v\nand is\n%+v, %v", data, got, gotErr, want, wantErr)
	}
}

// What a record can hold is read without help, and a new field is not forgotten here.
func TestFields(t *testing.T) {
	for i := range reflect.TypeFor[task.Record]().NumField() {
		var r task.Record
		n := i
		fill(reflect.ValueOf(&r).Elem().Field(i), &n)
		data := encode(t, r)
		same(t, data)
		p := parser{rest: data}
		if !p.record(&task.Record{}) || len(p.rest) > 0 {
			t.Errorf("field %s is left to the slow way: %s", reflect.TypeFor[task.Record]().Field(i).Name, data)
		}
	}
	var r task.Record
	n := 0
	fill(reflect.ValueOf(&r).Elem(), &n)
	same(t, encode(t, r))
	same(t, encode(t, task.Record{}))
}

// odd is JSON that our encoder does not write.
func odd() []string {
	return []string{
		``, `null`, `{`, `{}`, ` {}`, `{} `, `{}{}`, `[]`, `{"name"}`, `{"name":}`, `{"name":"a",}`, `{,}`,
		`{"name":"a"}x`, `{"name": "a"}`, `{"NAME":"a"}`, `{"name":"a","name":"b"}`, `{"name":null}`, `{"name":1}`, `{"name":"` + "\x01" + `"}`,
		`{"name":"` + "\xff" + `"}`, `{"name":"\ud800"}`, `{"name":"\x"}`, `{"n\u0061me":"a"}`, `{"name":"a`, `{"name":"a\`, `{"new":{"a":[1]},"name":"b"}`,
		`{"depth":01}`, `{"depth":-0}`, `{"depth":-1}`, `{"depth":1.0}`, `{"depth":1e2}`, `{"depth":12345678901234567890}`, `{"depth":"1"}`, `{"depth":-}`, `{"depth":1`,
		`{"process":{"pid":1,"start":-0}}`, `{"process":{"pid":1,"start":-1}}`, `{"process":{"pid":1,"new":2}}`, `{"process":{"pid":1},"process":{"start":2}}`,
		`{"process":{"pid":1},"process":null}`, `{"process":null,"process":{"pid":1}}`, `{"cause":{"actor":"a"},"cause":{"reason":"b"}}`,
		`{"create_time":"2026-01-02T03:04:05Z"}`, `{"create_time":"2026-01-02T03:04:05+01:00"}`, `{"create_time":"2026-01-02"}`, `{"create_time":null}`, `{"create_time":5}`,
		`{"start_time":"2026-13-02T03:04:05Z"}`, `{"start_time":"2026-01-02T03:04:05Z","start_time":null}`, `{"exit_code":1,"exit_code":2}`, `{"exit_code":nul}`,
		`{"usage":null,"name":"b"}`, `{"usage":{"turns":1},"usage":{"tool_uses":2}}`, `{"usage":}`, `{"usage":]}`, `{"usage":{"turns":"}"}}`, `{"usage":[}`,
		`{"checkpoint":"YWI="}`, `{"checkpoint":"!"}`, `{"questions":[{"id":"[\"]"}]}`, `{"idle":true}`, `{"idle":tru}`, `{"idle":truefalse}`, `{"idle":null}`,
		`{"crc32c":"00000000"}`, `{"crc32c":1}`, `{"budget":{"tokens":1}}`, `{"budget":7}`,
	}
}

func TestOdd(t *testing.T) {
	for _, s := range odd() {
		same(t, []byte(s))
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range odd() {
		f.Add([]byte(s))
	}
	var r task.Record
	n := 0
	fill(reflect.ValueOf(&r).Elem(), &n)
	f.Add(encode(f, r))
	f.Fuzz(func(t *testing.T, data []byte) { same(t, data) })
}

func BenchmarkRead(b *testing.B) {
	now, code := time.Unix(1, 123456789).UTC(), 0
	data := encode(b, task.Record{ID: "b12345678", Run: "run_1234567890", Kind: task.LocalBash, Status: task.Completed, Backgrounded: true, Session: "s12345678",
		Description: "make check of something", Command: "make check PKG=./something", Cwd: "/home/somebody/project", CreateTime: now, StartTime: &now, EndTime: &now,
		OutputFile: "/home/somebody/.drover/projects/project-12345678/s12345678/tasks/b12345678.output", ExitCode: &code,
		Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}, Process: &task.Process{PID: 4_000_000, Start: 1, Boot: "none"}})
	for name, read := range map[string]func([]byte, *task.Record) error{
		"ours": Read, "encoding/json": func(data []byte, r *task.Record) error { *r = task.Record{}; return json.Unmarshal(data, r) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var r task.Record
			for b.Loop() {
				if err := read(data, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
