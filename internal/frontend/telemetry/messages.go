package telemetry

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// object is a message of OTLP 1.x (opentelemetry/proto/trace/v1) in its JSON encoding: 64-bit integers are strings, IDs
// are hexadecimal and enumerations are numbers.
type object = map[string]any

// Bits of the flags of a span (SpanFlags): whether its parent is remote is known, and it is remote.
const (
	parentKnown  = 0x100
	parentRemote = 0x200
)

// tracesOf encodes the spans of one provider, which share a resource and a scope.
func tracesOf(spans []sdktrace.ReadOnlySpan) object {
	scope := spans[0].InstrumentationScope()
	all := make([]object, len(spans))
	for i, s := range spans {
		all[i] = spanOf(s)
	}
	return object{"resourceSpans": []object{{
		"resource":   object{"attributes": attributes(spans[0].Resource().Attributes())},
		"scopeSpans": []object{{"scope": object{"name": scope.Name, "version": scope.Version}, "spans": all}},
	}}}
}

func spanOf(s sdktrace.ReadOnlySpan) object {
	own, parent := s.SpanContext(), s.Parent()
	flags := uint32(own.TraceFlags()) | parentKnown
	if parent.SpanID().IsValid() && parent.IsRemote() {
		flags |= parentRemote
	}
	out := object{
		"traceId": own.TraceID().String(), "spanId": own.SpanID().String(), "traceState": own.TraceState().String(),
		"flags": flags, "name": s.Name(), "kind": int(s.SpanKind()), "startTimeUnixNano": nanos(s.StartTime()),
		"endTimeUnixNano": nanos(s.EndTime()), "attributes": attributes(s.Attributes()),
		"droppedAttributesCount": s.DroppedAttributes(),
	}
	if parent.SpanID().IsValid() {
		out["parentSpanId"] = parent.SpanID().String()
	}
	events := []object{}
	for _, e := range s.Events() {
		events = append(events, object{"timeUnixNano": nanos(e.Time), "name": e.Name, "attributes": attributes(e.Attributes)})
	}
	out["events"] = events
	switch st := s.Status(); st.Code {
	case codes.Ok:
		out["status"] = object{"code": 1}
	case codes.Error:
		out["status"] = object{"code": 2, "message": st.Description}
	}
	return out
}

func nanos(t time.Time) string { return strconv.FormatInt(max(0, t.UnixNano()), 10) }

func attributes(in []attribute.KeyValue) []object {
	out := make([]object, len(in))
	for i, a := range in {
		out[i] = object{"key": string(a.Key), "value": valueOf(a.Value)}
	}
	return out
}

// valueOf encodes the types that Drover's spans and resources have, and any other as text.
func valueOf(v attribute.Value) object {
	switch v.Type() {
	case attribute.BOOL:
		return object{"boolValue": v.AsBool()}
	case attribute.INT64:
		return object{"intValue": strconv.FormatInt(v.AsInt64(), 10)}
	case attribute.FLOAT64:
		return object{"doubleValue": v.AsFloat64()}
	case attribute.STRINGSLICE:
		all := []object{}
		for _, s := range v.AsStringSlice() {
			all = append(all, object{"stringValue": s})
		}
		return object{"arrayValue": object{"values": all}}
	}
	return object{"stringValue": v.String()}
}
