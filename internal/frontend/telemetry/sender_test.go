package telemetry

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func export(t *testing.T, env map[string]string) error {
	t.Helper()
	e, err := newSender(func(name string) string { return env[name] }, "", nil)
	if err != nil {
		return err
	}
	e.wait = time.Millisecond
	defer func() {
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	span := tracetest.SpanStub{Name: "x", Attributes: []attribute.KeyValue{attribute.Float64("f", 0.5),
		attribute.Int64("i", 1<<60), attribute.StringSlice("b", []string{"x"}), attribute.BoolSlice("c", []bool{true})}}
	return e.ExportSpans(context.Background(), tracetest.SpanStubs{span}.Snapshots())
}

// A collector that has no time is asked again; one that refuses is not.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		answers []int
		want    string // of the error
	}{
		{[]int{503, 200}, ""},
		{[]int{429, 502, 200}, ""},
		{[]int{400}, "400"},
		{[]int{307}, "307"}, // the headers may hold a key
		{[]int{504, 504, 504, 504, 504}, "504"},
	} {
		n := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(c.answers[n])
			n++
		}))
		err := export(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": srv.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "60000"})
		srv.Close()
		if n != len(c.answers) || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %d requests, %v", c.answers, n, err)
		}
	}
}

// Variables for one signal come before those for all.
func TestVariables(t *testing.T) {
	var body, key string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		raw, _ := io.ReadAll(z)
		body, key = r.URL.Path+" "+string(raw), r.Header.Get("key")
	}))
	defer srv.Close()
	if err := export(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": srv.URL + "/own",
		"OTEL_EXPORTER_OTLP_HEADERS": "key=all", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "key=one%2Ctwo, other=x",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/own {", `{"doubleValue":0.5}`, `{"intValue":"1152921504606846976"}`,
		`{"arrayValue":{"values":[{"stringValue":"x"}]}}`, `{"stringValue":"[true]"}`} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in %s", want, body)
		}
	}
	if key != "one,two" {
		t.Errorf("the key is %q", key)
	}
}

func TestWrongVariables(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318", "OTEL_EXPORTER_OTLP_HEADERS": "key",
		"OTEL_EXPORTER_OTLP_TIMEOUT":     "1s",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/none/such",
	} {
		if err := export(t, map[string]string{name: value}); err == nil {
			t.Errorf("%s=%s is accepted", name, value)
		}
	}
}

// When the process ends, an unreachable collector is not tried again.
func TestEnding(t *testing.T) {
	ending := make(chan struct{})
	close(ending)
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "3600000"}
	e, err := newSender(func(name string) string { return env[name] }, "", ending)
	if err != nil {
		t.Fatal(err)
	}
	e.wait = time.Hour
	spans := tracetest.SpanStubs{{Name: "x"}}.Snapshots()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second) // ends a wait that should not be
	defer cancel()
	if err := e.ExportSpans(ctx, spans); err == nil || !strings.Contains(err.Error(), "refused") || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// A collector that never answers costs the limit, and no more.
func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	err := export(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": srv.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "50"})
	if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Error(err)
	}
}
