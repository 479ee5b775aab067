package otlp

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Parts that all signals have, as the JSON mapping of OTLP writes them: 64-bit integers are text, IDs are
// hexadecimal, enumerations are numbers.

type resourceJSON struct {
	Attributes []keyValue `json:"attributes,omitempty"`
}

type scopeJSON struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

type keyValue struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type value struct {
	String *string    `json:"stringValue,omitempty"`
	Bool   *bool      `json:"boolValue,omitempty"`
	Int    *int64     `json:"intValue,omitempty,string"`
	Double *number    `json:"doubleValue,omitempty"`
	Array  *arrayJSON `json:"arrayValue,omitempty"`
	Map    *mapJSON   `json:"kvlistValue,omitempty"`
	Bytes  *string    `json:"bytesValue,omitempty"`
}

type arrayJSON struct {
	Values []value `json:"values"`
}

type mapJSON struct {
	Values []keyValue `json:"values"`
}

// number is a float, of which JSON has no NaN and no infinity.
type number float64

// MarshalJSON implements [json.Marshaler].
func (n number) MarshalJSON() ([]byte, error) {
	switch f := float64(n); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return strconv.AppendFloat(nil, f, 'g', -1, 64), nil
	}
}

func numbers(in []float64) []number {
	out := make([]number, len(in))
	for i, f := range in {
		out[i] = number(f)
	}
	return out
}

func nanos(t time.Time) uint64 {
	if n := t.UnixNano(); !t.IsZero() && n > 0 {
		return uint64(n)
	}
	return 0
}

func resourceOf(r *resource.Resource) resourceJSON { return resourceJSON{attributes(r.Attributes())} }

func scopeOf(s instrumentation.Scope) scopeJSON { return scopeJSON{s.Name, s.Version} }

func attributes(in []attribute.KeyValue) []keyValue {
	out := make([]keyValue, len(in))
	for i, a := range in {
		out[i] = keyValue{string(a.Key), valueOf(a.Value)}
	}
	return out
}

func valueOf(v attribute.Value) value {
	switch v.Type() {
	case attribute.BOOL:
		b := v.AsBool()
		return value{Bool: &b}
	case attribute.INT64:
		n := v.AsInt64()
		return value{Int: &n}
	case attribute.FLOAT64:
		f := number(v.AsFloat64())
		return value{Double: &f}
	case attribute.STRING:
		s := v.AsString()
		return value{String: &s}
	case attribute.BOOLSLICE:
		return list(v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		return list(v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		return list(v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.STRINGSLICE:
		return list(v.AsStringSlice(), attribute.StringValue)
	case attribute.BYTESLICE:
		s := base64.StdEncoding.EncodeToString(v.AsByteSlice())
		return value{Bytes: &s}
	case attribute.MAP:
		return value{Map: &mapJSON{attributes(v.AsMap())}}
	case attribute.SLICE:
		return list(v.AsSlice(), func(v attribute.Value) attribute.Value { return v })
	default:
		return value{}
	}
}

func list[T any](in []T, of func(T) attribute.Value) value {
	out := make([]value, len(in))
	for i, one := range in {
		out[i] = valueOf(of(one))
	}
	return value{Array: &arrayJSON{out}}
}
