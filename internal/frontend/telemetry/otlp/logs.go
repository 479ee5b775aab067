package otlp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

type logsJSON struct {
	Resources []logsOfResource `json:"resourceLogs"`
}

type logsOfResource struct {
	Resource resourceJSON  `json:"resource"`
	Scopes   []logsOfScope `json:"scopeLogs"`
}

type logsOfScope struct {
	Scope   scopeJSON    `json:"scope"`
	Records []recordJSON `json:"logRecords"`
}

type recordJSON struct {
	At           uint64     `json:"timeUnixNano,string"`
	Observed     uint64     `json:"observedTimeUnixNano,string"`
	Severity     int        `json:"severityNumber,omitempty"`
	SeverityText string     `json:"severityText,omitempty"`
	Body         value      `json:"body"`
	Attributes   []keyValue `json:"attributes,omitempty"`
	Dropped      int        `json:"droppedAttributesCount,omitempty"`
	Flags        uint32     `json:"flags,omitempty"`
	TraceID      string     `json:"traceId,omitempty"`
	SpanID       string     `json:"spanId,omitempty"`
	EventName    string     `json:"eventName,omitempty"`
}

type logs struct{ *client }

// NewLogs returns an exporter of records of logs.
func NewLogs(c Config) (sdklog.Exporter, error) {
	out, err := newClient(c, Logs)
	if err != nil {
		return nil, err
	}
	return logs{out}, nil
}

// Export implements [sdklog.Exporter].
func (l logs) Export(ctx context.Context, records []sdklog.Record) error {
	if len(records) == 0 {
		return nil
	}
	in := logsOfResource{Resource: resourceOf(records[0].Resource())} // a provider has one resource
	scopes := map[instrumentation.Scope]int{}
	for i := range records {
		scope := records[i].InstrumentationScope()
		at, ok := scopes[scope]
		if !ok {
			at = len(in.Scopes)
			scopes[scope] = at
			in.Scopes = append(in.Scopes, logsOfScope{Scope: scopeOf(scope)})
		}
		in.Scopes[at].Records = append(in.Scopes[at].Records, recordOf(&records[i]))
	}
	return l.send(ctx, logsJSON{[]logsOfResource{in}})
}

// ForceFlush implements [sdklog.Exporter].
func (l logs) ForceFlush(context.Context) error { return nil }

// Shutdown implements [sdklog.Exporter].
func (l logs) Shutdown(context.Context) error {
	l.close()
	return nil
}

func recordOf(r *sdklog.Record) recordJSON {
	out := recordJSON{
		At: nanos(r.Timestamp()), Observed: nanos(r.ObservedTimestamp()), Severity: int(r.Severity()),
		SeverityText: r.SeverityText(), Body: valueOf(r.Body()), Dropped: r.DroppedAttributes(),
		Flags: uint32(r.TraceFlags()), EventName: r.EventName(),
	}
	if id := r.TraceID(); id.IsValid() {
		out.TraceID = id.String()
	}
	if id := r.SpanID(); id.IsValid() {
		out.SpanID = id.String()
	}
	r.WalkAttributes(func(a attribute.KeyValue) bool {
		out.Attributes = append(out.Attributes, keyValue{string(a.Key), valueOf(a.Value)})
		return true
	})
	return out
}
