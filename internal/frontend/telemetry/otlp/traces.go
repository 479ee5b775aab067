package otlp

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

type tracesJSON struct {
	Resources []spansOfResource `json:"resourceSpans"`
}

type spansOfResource struct {
	Resource resourceJSON   `json:"resource"`
	Scopes   []spansOfScope `json:"scopeSpans"`
}

type spansOfScope struct {
	Scope scopeJSON  `json:"scope"`
	Spans []spanJSON `json:"spans"`
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
	Links      []linkJSON  `json:"links,omitempty"`
	Status     *statusJSON `json:"status,omitempty"`
}

type eventJSON struct {
	At         uint64     `json:"timeUnixNano,string"`
	Name       string     `json:"name"`
	Attributes []keyValue `json:"attributes,omitempty"`
}

type linkJSON struct {
	TraceID    string     `json:"traceId"`
	SpanID     string     `json:"spanId"`
	Attributes []keyValue `json:"attributes,omitempty"`
}

type statusJSON struct {
	Message string `json:"message,omitempty"`
	Code    int    `json:"code"`
}

// Bits of the flags of a span: it is known whether its parent is in another process, and it is.
const (
	parentKnown  = 0x100
	parentRemote = 0x200
)

type traces struct{ *client }

// NewTraces returns an exporter of spans.
func NewTraces(c Config) (sdktrace.SpanExporter, error) {
	out, err := newClient(c, Traces)
	if err != nil {
		return nil, err
	}
	return traces{out}, nil
}

// ExportSpans implements [sdktrace.SpanExporter].
func (t traces) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	in := spansOfResource{Resource: resourceOf(spans[0].Resource())} // a provider has one resource
	scopes := map[instrumentation.Scope]int{}
	for _, s := range spans {
		at, ok := scopes[s.InstrumentationScope()]
		if !ok {
			at = len(in.Scopes)
			scopes[s.InstrumentationScope()] = at
			in.Scopes = append(in.Scopes, spansOfScope{Scope: scopeOf(s.InstrumentationScope())})
		}
		in.Scopes[at].Spans = append(in.Scopes[at].Spans, spanOf(s))
	}
	return t.send(ctx, tracesJSON{[]spansOfResource{in}})
}

// Shutdown implements [sdktrace.SpanExporter].
func (t traces) Shutdown(context.Context) error {
	t.close()
	return nil
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
	for _, l := range s.Links() {
		out.Links = append(out.Links, linkJSON{l.SpanContext.TraceID().String(), l.SpanContext.SpanID().String(),
			attributes(l.Attributes)})
	}
	switch st := s.Status(); st.Code {
	case codes.Ok:
		out.Status = &statusJSON{Code: 1}
	case codes.Error:
		out.Status = &statusJSON{Code: 2, Message: st.Description}
	}
	return out
}
