package otlp

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The messages of OTLP 1.x (opentelemetry/proto/trace/v1) in their JSON encoding: 64-bit integers are strings, IDs are
// hexadecimal and enumerations are numbers.

type tracesJSON struct {
	Resources []spansOfResource `json:"resourceSpans"`
}

type spansOfResource struct {
	Resource resourceJSON   `json:"resource"`
	Scopes   []spansOfScope `json:"scopeSpans"`
}

type resourceJSON struct {
	Attributes []keyValue `json:"attributes,omitempty"`
}

type spansOfScope struct {
	Scope scopeJSON  `json:"scope"`
	Spans []spanJSON `json:"spans"`
}

type scopeJSON struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

type spanJSON struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	TraceState string      `json:"traceState,omitempty"`
	ParentID   string      `json:"parentSpanId,omitempty"`
	Flags      uint32      `json:"flags,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      uint64      `json:"startTimeUnixNano,string"`
	End        uint64      `json:"endTimeUnixNano,string"`
	Attributes []keyValue  `json:"attributes,omitempty"`
	Dropped    int         `json:"droppedAttributesCount,omitempty"`
	Events     []eventJSON `json:"events,omitempty"`
	Status     *statusJSON `json:"status,omitempty"`
}

type eventJSON struct {
	At         uint64     `json:"timeUnixNano,string"`
	Name       string     `json:"name"`
	Attributes []keyValue `json:"attributes,omitempty"`
}

type statusJSON struct {
	Message string `json:"message,omitempty"`
	Code    int    `json:"code"`
}

type keyValue struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type value struct {
	String *string    `json:"stringValue,omitempty"`
	Bool   *bool      `json:"boolValue,omitempty"`
	Int    *int64     `json:"intValue,omitempty,string"`
	Double *float64   `json:"doubleValue,omitempty"`
	Array  *arrayJSON `json:"arrayValue,omitempty"`
}

type arrayJSON struct {
	Values []value `json:"values"`
}

// Bits of the flags of a span (SpanFlags): whether its parent is remote is known, and it is remote.
const (
	parentKnown  = 0x100
	parentRemote = 0x200
)

// tracesOf encodes the spans of one provider, which share a resource and a scope.
func tracesOf(spans []sdktrace.ReadOnlySpan) tracesJSON {
	scope := spans[0].InstrumentationScope()
	all := spansOfScope{Scope: scopeJSON{scope.Name, scope.Version}, Spans: make([]spanJSON, len(spans))}
	for i, s := range spans {
		all.Spans[i] = spanOf(s)
	}
	return tracesJSON{[]spansOfResource{{resourceOf(spans[0].Resource()), []spansOfScope{all}}}}
}

func spanOf(s sdktrace.ReadOnlySpan) spanJSON {
	own := s.SpanContext()
	out := spanJSON{
		TraceID: own.TraceID().String(), SpanID: own.SpanID().String(), TraceState: own.TraceState().String(),
		Flags: uint32(own.TraceFlags()) | parentKnown, Name: s.Name(), Kind: int(s.SpanKind()),
		Start: nanos(s.StartTime()), End: nanos(s.EndTime()), Attributes: attributes(s.Attributes()),
		Dropped: s.DroppedAttributes(),
	}
	if p := s.Parent(); p.SpanID().IsValid() {
		out.ParentID = p.SpanID().String()
		if p.IsRemote() {
			out.Flags |= parentRemote
		}
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, eventJSON{nanos(e.Time), e.Name, attributes(e.Attributes)})
	}
	switch st := s.Status(); st.Code {
	case codes.Ok:
		out.Status = &statusJSON{Code: 1}
	case codes.Error:
		out.Status = &statusJSON{Code: 2, Message: st.Description}
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

func attributes(in []attribute.KeyValue) []keyValue {
	out := make([]keyValue, len(in))
	for i, a := range in {
		out[i] = keyValue{string(a.Key), valueOf(a.Value)}
	}
	return out
}

// valueOf encodes the types that Drover's spans and resources have, and any other as text.
func valueOf(v attribute.Value) value {
	switch v.Type() {
	case attribute.BOOL:
		b := v.AsBool()
		return value{Bool: &b}
	case attribute.INT64:
		n := v.AsInt64()
		return value{Int: &n}
	case attribute.FLOAT64:
		f := v.AsFloat64()
		return value{Double: &f}
	case attribute.STRINGSLICE:
		var all arrayJSON
		for _, s := range v.AsStringSlice() {
			all.Values = append(all.Values, value{String: &s})
		}
		return value{Array: &all}
	default:
		s := v.String()
		return value{String: &s}
	}
}
