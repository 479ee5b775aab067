package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
	tries           = 5
	defaultWait     = 500 * time.Millisecond
	longestWait     = 10 * time.Second
	maxAnswer       = 64 << 10
)

// endpointVariable has precedence over the endpoint of all signals.
const endpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"

// sender exports spans by OTLP over HTTP, encoded as JSON. It implements [sdktrace.SpanExporter].
//
// It takes the place of otlptracehttp, which links Protocol Buffers and gRPC: these make the binary 7 MB larger and
// each start two milliseconds slower, also when nothing is exported (docs/adr/0010). The variables
// OTEL_EXPORTER_OTLP_… have the same meaning as for that exporter. It does not speak gRPC or http/protobuf.
type sender struct {
	url     string
	headers http.Header
	gzip    bool
	limit   time.Duration // of one request including its retries
	wait    time.Duration // before the first retry, doubled for each further one
	ending  <-chan struct{}
	http    *http.Client
}

// newSender returns a sender to the collector that the variables name, or else the endpoint; by default port 4318 of
// this machine. It does not connect. Ending is closed when the process ends: from then on an unreachable collector is
// not tried again.
func newSender(env func(string) string, endpoint string, ending <-chan struct{}) (*sender, error) {
	of := func(name string) (value, variable string) {
		own, all := "OTEL_EXPORTER_OTLP_TRACES_"+name, "OTEL_EXPORTER_OTLP_"+name
		if v := env(own); v != "" {
			return v, own
		}
		return env(all), all
	}
	at := env(endpointVariable)
	if at == "" {
		base := cmp.Or(env("OTEL_EXPORTER_OTLP_ENDPOINT"), endpoint, defaultEndpoint)
		at = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("send traces to %.200q: not an HTTP address (give one such as %s)", at, defaultEndpoint)
	}
	out := &sender{url: at, limit: defaultTimeout, wait: defaultWait, ending: ending, headers: http.Header{}}
	value, variable := of("HEADERS")
	for pair := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, text, found := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(text))
		if !found || err != nil {
			return nil, fmt.Errorf("read %s: not a list of NAME=VALUE with %%XX for special characters", variable)
		}
		out.headers.Set(strings.TrimSpace(name), plain)
	}
	if value, variable = of("TIMEOUT"); value != "" {
		ms, err := strconv.Atoi(value)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("read %s: %.40q is not a number of milliseconds", variable, value)
		}
		out.limit = time.Duration(ms) * time.Millisecond
	}
	switch value, variable = of("COMPRESSION"); value {
	case "", "none":
	case "gzip":
		out.gzip = true
	default:
		return nil, fmt.Errorf("read %s: %.40q is neither gzip nor none", variable, value)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = secured(of); err != nil {
		return nil, err
	}
	out.http = &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return out, nil
}

// secured reads the certificates that the variables name.
func secured(of func(string) (value, variable string)) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path, variable := of("CERTIFICATE"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the file of %s: %w", variable, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read the file of %s: no certificate in PEM format", variable)
		}
	}
	cert, variable := of("CLIENT_CERTIFICATE")
	key, _ := of("CLIENT_KEY")
	if cert != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read the files of %s and its key: %w", variable, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// ExportSpans implements [sdktrace.SpanExporter]. It retries while the collector is busy or unreachable.
func (c *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	body, err := json.Marshal(tracesOf(spans))
	if err != nil {
		return fmt.Errorf("send to %s: %w", c.url, err)
	}
	if c.gzip {
		if body, err = compressed(body); err != nil {
			return fmt.Errorf("send to %s: compress: %w", c.url, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("no answer within %v", c.limit))
	defer cancel()
	wait := c.wait
	for try := 1; ; try++ {
		next, after, err := c.post(ctx, body)
		if err == nil || next == fails || try == tries {
			return err
		}
		var ending <-chan struct{}
		if next == unreachable {
			ending = c.ending
		}
		timer := time.NewTimer(min(max(wait, after), longestWait))
		select {
		case <-timer.C:
		case <-ending:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		wait *= 2
	}
}

func compressed(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// verdict says whether a failed request may succeed later.
type verdict int

const (
	fails       verdict = iota // retrying is useless
	unreachable                // the collector did not answer
	busy                       // the collector asked to retry
)

// post makes one request. It returns the minimum time before a retry.
func (c *sender) post(ctx context.Context, body []byte) (next verdict, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return fails, 0, fmt.Errorf("send to %s: %w", c.url, err)
	}
	req.Header = c.headers.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "OTel-OTLP-Exporter-Drover")
	if c.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if ctx.Err() == nil {
			next = unreachable
		}
		return next, 0, fmt.Errorf("send to %s: %w", c.url, bare(err))
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // used for the error only
	switch {
	case resp.StatusCode/100 == 2:
		return fails, 0, refused(c.url, answer)
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusBadGateway,
		resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusGatewayTimeout:
		next = busy
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			after = time.Duration(s) * time.Second
		}
	}
	return next, after, fmt.Errorf("send to %s: the collector answered %s", c.url, resp.Status)
}

// bare removes the address from an HTTP error: the caller adds it.
func bare(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused returns the error of a request that the collector accepted only in part.
func refused(at string, answer []byte) error {
	var a struct {
		Partial struct {
			Message string `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &a) != nil || a.Partial.Message == "" {
		return nil
	}
	return fmt.Errorf("send to %s: the collector refused a part: %.500q", at, a.Partial.Message)
}

// Shutdown implements [sdktrace.SpanExporter].
func (c *sender) Shutdown(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}
