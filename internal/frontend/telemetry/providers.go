package telemetry

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/noop"
	"go.opentelemetry.io/otel/metric"
	nometer "go.opentelemetry.io/otel/metric/noop"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	notrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/telemetry/otlp"
)

const scope = "github.com/drover-dev/drover"

// providers are where spans, measurements and records go.
type providers struct {
	tracer trace.Tracer
	meter  metric.Meter
	logger log.Logger
	ends   []func(context.Context) error
	hurry  chan struct{} // closed by close
	tell   func(error)
}

// provide makes the providers of the wanted signals. What the variables of OpenTelemetry say of them (headers,
// limits, samplers, intervals) its SDK reads.
func (x *Exporter) provide(ctx context.Context, info control.Info) (*providers, error) {
	var once sync.Once
	p := &providers{
		hurry:  make(chan struct{}),
		tracer: notrace.NewTracerProvider().Tracer(scope),
		meter:  nometer.NewMeterProvider().Meter(scope),
		logger: noop.NewLoggerProvider().Logger(scope),
		tell:   func(err error) { once.Do(func() { x.tell(err) }) },
	}
	// The SDK has one place for errors in a process, and a process has one session.
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
	to := otlp.Config{Env: x.cfg.Env, Endpoint: x.cfg.Endpoint, Hurry: p.hurry}
	if x.signals.Traces {
		e, err := otlp.NewTraces(to)
		if err != nil {
			return nil, err
		}
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(res))
		p.tracer, p.ends = tp.Tracer(scope, trace.WithInstrumentationVersion(x.cfg.Version)), append(p.ends, tp.Shutdown)
	}
	if x.signals.Metrics {
		e, err := otlp.NewMetrics(to)
		if err != nil {
			return nil, err
		}
		mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e)), sdkmetric.WithResource(res))
		p.meter, p.ends = mp.Meter(scope, metric.WithInstrumentationVersion(x.cfg.Version)), append(p.ends, mp.Shutdown)
	}
	if x.signals.Logs {
		e, err := otlp.NewLogs(to)
		if err != nil {
			return nil, err
		}
		lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(e)), sdklog.WithResource(res))
		p.logger, p.ends = lp.Logger(scope, log.WithInstrumentationVersion(x.cfg.Version)), append(p.ends, lp.Shutdown)
	}
	return p, nil
}

// close sends what is left, all signals at the same time, until ctx ends.
func (p *providers) close(ctx context.Context) {
	close(p.hurry)
	var all sync.WaitGroup
	for _, end := range p.ends {
		all.Go(func() {
			if err := end(ctx); err != nil {
				p.tell(err)
			}
		})
	}
	all.Wait()
}
