package otlp

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

type metricsJSON struct {
	Resources []metricsOfResource `json:"resourceMetrics"`
}

type metricsOfResource struct {
	Resource resourceJSON     `json:"resource"`
	Scopes   []metricsOfScope `json:"scopeMetrics"`
}

type metricsOfScope struct {
	Scope   scopeJSON    `json:"scope"`
	Metrics []metricJSON `json:"metrics"`
}

type metricJSON struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Unit        string         `json:"unit,omitempty"`
	Gauge       *gaugeJSON     `json:"gauge,omitempty"`
	Sum         *sumJSON       `json:"sum,omitempty"`
	Histogram   *histogramJSON `json:"histogram,omitempty"`
}

type gaugeJSON struct {
	Points []pointJSON `json:"dataPoints"`
}

type sumJSON struct {
	Points      []pointJSON `json:"dataPoints"`
	Temporality int         `json:"aggregationTemporality"`
	Monotonic   bool        `json:"isMonotonic,omitempty"`
}

type histogramJSON struct {
	Points      []bucketsJSON `json:"dataPoints"`
	Temporality int           `json:"aggregationTemporality"`
}

type pointJSON struct {
	Attributes []keyValue `json:"attributes,omitempty"`
	Start      uint64     `json:"startTimeUnixNano,string"`
	At         uint64     `json:"timeUnixNano,string"`
	Double     *number    `json:"asDouble,omitempty"`
	Int        *int64     `json:"asInt,omitempty,string"`
}

type bucketsJSON struct {
	Attributes []keyValue `json:"attributes,omitempty"`
	Start      uint64     `json:"startTimeUnixNano,string"`
	At         uint64     `json:"timeUnixNano,string"`
	Count      uint64     `json:"count,string"`
	Sum        *number    `json:"sum,omitempty"`
	Buckets    []uint64   `json:"bucketCounts"`
	Bounds     []number   `json:"explicitBounds"`
	Min        *number    `json:"min,omitempty"`
	Max        *number    `json:"max,omitempty"`
}

type metrics struct {
	*client
	temporality sdkmetric.TemporalitySelector
}

// NewMetrics returns an exporter of measurements.
func NewMetrics(c Config) (sdkmetric.Exporter, error) {
	out, err := newClient(c, Metrics)
	if err != nil {
		return nil, err
	}
	m := metrics{out, sdkmetric.DefaultTemporalitySelector}
	switch p := c.Env("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"); p {
	case "", "cumulative", "CUMULATIVE":
	case "delta", "DELTA", "lowmemory", "LOWMEMORY": // these differ for instruments that are asked only
		m.temporality = delta
	default:
		return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: "+
			"%.40q is none of cumulative, delta and lowmemory", p)
	}
	return m, nil
}

func delta(k sdkmetric.InstrumentKind) metricdata.Temporality {
	switch k {
	case sdkmetric.InstrumentKindUpDownCounter, sdkmetric.InstrumentKindObservableUpDownCounter:
		return metricdata.CumulativeTemporality
	default:
		return metricdata.DeltaTemporality
	}
}

// Temporality implements [sdkmetric.Exporter].
func (m metrics) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return m.temporality(k)
}

// Aggregation implements [sdkmetric.Exporter].
func (m metrics) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

// Export implements [sdkmetric.Exporter].
func (m metrics) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	in := metricsOfResource{Resource: resourceOf(all.Resource)}
	for _, s := range all.ScopeMetrics {
		out := metricsOfScope{Scope: scopeOf(s.Scope)}
		for _, one := range s.Metrics {
			j, err := metricOf(one)
			if err != nil {
				return err
			}
			out.Metrics = append(out.Metrics, j)
		}
		in.Scopes = append(in.Scopes, out)
	}
	if len(in.Scopes) == 0 {
		return nil
	}
	return m.send(ctx, metricsJSON{[]metricsOfResource{in}})
}

// ForceFlush implements [sdkmetric.Exporter].
func (m metrics) ForceFlush(context.Context) error { return nil }

// Shutdown implements [sdkmetric.Exporter].
func (m metrics) Shutdown(context.Context) error {
	m.close()
	return nil
}

func metricOf(in metricdata.Metrics) (metricJSON, error) {
	out := metricJSON{Name: in.Name, Description: in.Description, Unit: in.Unit}
	switch d := in.Data.(type) {
	case metricdata.Gauge[int64]:
		out.Gauge = &gaugeJSON{points(d.DataPoints, whole)}
	case metricdata.Gauge[float64]:
		out.Gauge = &gaugeJSON{points(d.DataPoints, fraction)}
	case metricdata.Sum[int64]:
		out.Sum = &sumJSON{points(d.DataPoints, whole), temporality(d.Temporality), d.IsMonotonic}
	case metricdata.Sum[float64]:
		out.Sum = &sumJSON{points(d.DataPoints, fraction), temporality(d.Temporality), d.IsMonotonic}
	case metricdata.Histogram[int64]:
		out.Histogram = &histogramJSON{buckets(d.DataPoints), temporality(d.Temporality)}
	case metricdata.Histogram[float64]:
		out.Histogram = &histogramJSON{buckets(d.DataPoints), temporality(d.Temporality)}
	default:
		return out, fmt.Errorf("send the metric %s: its form %T is not known", in.Name, in.Data)
	}
	return out, nil
}

func temporality(t metricdata.Temporality) int {
	if t == metricdata.DeltaTemporality {
		return 1
	}
	return 2
}

func whole(p *pointJSON, n int64) { p.Int = &n }

func fraction(p *pointJSON, f float64) {
	n := number(f)
	p.Double = &n
}

func points[N int64 | float64](in []metricdata.DataPoint[N], set func(*pointJSON, N)) []pointJSON {
	out := make([]pointJSON, len(in))
	for i, p := range in {
		out[i] = pointJSON{Attributes: setOf(p.Attributes), Start: nanos(p.StartTime), At: nanos(p.Time)}
		set(&out[i], p.Value)
	}
	return out
}

func buckets[N int64 | float64](in []metricdata.HistogramDataPoint[N]) []bucketsJSON {
	out := make([]bucketsJSON, len(in))
	for i, p := range in {
		sum := number(p.Sum)
		out[i] = bucketsJSON{Attributes: setOf(p.Attributes), Start: nanos(p.StartTime), At: nanos(p.Time),
			Count: p.Count, Sum: &sum, Buckets: p.BucketCounts, Bounds: numbers(p.Bounds),
			Min: extreme(p.Min), Max: extreme(p.Max)}
	}
	return out
}

func extreme[N int64 | float64](e metricdata.Extrema[N]) *number {
	v, ok := e.Value()
	if !ok {
		return nil
	}
	n := number(v)
	return &n
}

func setOf(s attribute.Set) []keyValue { return attributes(s.ToSlice()) }
