package telemetry

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/drover-dev/drover/internal/api/control"
)

const scope = "github.com/drover-dev/drover"

// provider makes spans and sends them.
type provider struct {
	trace.Tracer
	sdk    *sdktrace.TracerProvider
	ending chan struct{} // closed by close
	tell   func(error)
}

// provide creates the provider. The SDK reads the variables for limits, sampler and batches.
func (x *Exporter) provide(ctx context.Context, info control.Info) (*provider, error) {
	var once sync.Once
	p := &provider{ending: make(chan struct{}), tell: func(err error) { once.Do(func() { x.tell(err) }) }}
	// The SDK has one error handler per process, and a process has one session.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(p.tell))
	otel.SetLogger(logr.Discard())
	res, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("drover"), semconv.ServiceVersion(x.cfg.Version),
			semconv.ServiceInstanceID(string(info.Session)), attribute.String("session.id", string(info.Session)),
			semconv.ProcessPID(info.PID)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	e, err := newSender(x.cfg.Env, x.cfg.Endpoint, p.ending)
	if err != nil {
		return nil, err
	}
	p.sdk = sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(res))
	p.Tracer = p.sdk.Tracer(scope, trace.WithInstrumentationVersion(x.cfg.Version))
	return p, nil
}

// flush sends the ended spans until ctx ends, and makes room for the last one: the SDK drops a span that ends while its
// queue is full.
func (p *provider) flush(ctx context.Context) {
	close(p.ending)
	if err := p.sdk.ForceFlush(ctx); err != nil {
		p.tell(err)
	}
}

// close sends the remaining spans until ctx ends, after flush.
func (p *provider) close(ctx context.Context) {
	if err := p.sdk.Shutdown(ctx); err != nil {
		p.tell(err)
	}
}
