package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

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
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), n)
			}
		}
	default:
		panic("no value of type " + v.Type().String())
	}
}

// full is a record with all that one can hold.
func full() (r task.Record) {
	n := 0
	fill(reflect.ValueOf(&r).Elem(), &n)
	return r
}

// A record is read as it was written, and holds on to nothing of what it was read
// from, which may be a page of ten thousand.
func TestRecord(t *testing.T) {
	for _, want := range []task.Record{{}, full()} {
		data, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		var got task.Record
		if err := decodeRecord(data, &got); err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] = 'x'
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v\nis read as\n%+v", want, got)
		}
	}
}

// odd is JSON that our encoder does not write.
func odd() []string {
	deep := func(n int) string { return `{"new":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	return []string{
		``, `null`, `{`, `{}`, ` {}`, `{} `, `{}{}`, `[]`, `{"name"}`, `{"name":}`, `{"name":"a",}`, `{,}`,
		`{"name":"a"}x`, `{"name": "a"}`, `{"NAME":"a"}`, `{"name":"a","name":"b"}`, `{"name":null}`, `{"name":1}`, `{"name":"` + "\x01" + `"}`,
		`{"name":"` + "\xff" + `"}`, `{"name":"\ud800"}`, `{"name":"\ud83dx"}`, `{"name":"\x"}`, `{"n\u0061me":"a"}`, `{"name":"a`, `{"name":"a\`, `{"new":{"a":[1]},"name":"b"}`,
		`{"depth":01}`, `{"depth":-0}`, `{"depth":-1}`, `{"depth":1.0}`, `{"depth":1e2}`, `{"depth":12345678901234567890}`, `{"depth":"1"}`, `{"depth":-}`, `{"depth":1`,
		`{"process":{"pid":1,"start":-0}}`, `{"process":{"pid":1,"start":-1}}`, `{"process":{"pid":1,"new":2}}`, `{"process":{"pid":1},"process":{"start":2}}`,
		`{"process":{"pid":1},"process":null}`, `{"process":null,"process":{"pid":1}}`, `{"cause":{"actor":"a"},"cause":{"reason":"b"}}`,
		`{"create_time":"2026-01-02T03:04:05Z"}`, `{"create_time":"2026-01-02T03:04:05+01:00"}`, `{"create_time":"2026-01-02"}`, `{"create_time":"2026-01-02T03:04>05Z"}`, `{"create_time":"2026-01-02T03:04,05Z"}`, `{"create_time":"2026-02-30T03:04:05Z"}`, `{"create_time":null}`, `{"create_time":5}`,
		`{"start_time":"2026-13-02T03:04:05Z"}`, `{"start_time":"2026-01-02T03:04:05Z","start_time":null}`, `{"exit_code":1,"exit_code":2}`, `{"exit_code":nul}`,
		`{"usage":null,"name":"b"}`, `{"usage":{"turns":1},"usage":{"tool_uses":2}}`, `{"usage":}`, `{"usage":]}`, `{"usage":{"turns":"}"}}`, `{"usage":[}`,
		`{"checkpoint":"YWI="}`, `{"checkpoint":"!"}`, `{"questions":[{"id":"[\"]"}]}`, `{"idle":true}`, `{"idle":tru}`, `{"idle":truefalse}`, `{"idle":null}`,
		`{"new":1.}`, `{"new":[1,]}`, `{"new":"\q"}`, `{"new":"` + "\n" + `"}`, `{"budget":{"tokens":1}}`, `{"budget":7}`, deep(100), deep(mostDeep - 1), deep(20_000), deep(8 << 20),
	}
}

// strict reports what is read otherwise than by [encoding/json], or not refused as it is.
func strict(t *testing.T, data []byte) {
	t.Helper()
	var got, want task.Record
	if decodeRecord(bytes.Clone(data), &got) != nil { // then it is read by that
		return
	}
	err := json.Unmarshal(data, &want)
	if sign := new(time.ParseError); errors.As(err, &sign) && slices.Contains([]string{"-", "T", ":"}, sign.LayoutElem) {
		return
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%.200s\nis read as\n%+v\nand is\n%+v, %v", data, got, want, err)
	}
}

func TestOddRecord(t *testing.T) {
	for _, s := range odd() {
		strict(t, []byte(s))
	}
}

func FuzzRecord(f *testing.F) {
	for _, s := range odd() {
		if len(s) < 64<<10 {
			f.Add([]byte(s))
		}
	}
	data, err := encode(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(strict)
}
