// Package otlp sends what the OpenTelemetry SDK collects by OTLP over HTTP, as JSON.
//
// The exporters of the SDK bring Protocol Buffers and gRPC, which made the binary 7 MB larger and every start of it
// two milliseconds slower, also where nothing is exported. OTLP has the same messages as JSON, which every
// collector reads at the same addresses. The variables OTEL_EXPORTER_OTLP_… mean what they mean to those exporters.
package otlp

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
)

const (
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
	tries           = 5
	defaultWait     = 500 * time.Millisecond
	longestWait     = 10 * time.Second
	maxAnswer       = 64 << 10
)

// Signal is a kind of what is sent, as variables name it.
type Signal string

// The signals.
const (
	Traces  Signal = "TRACES"
	Metrics Signal = "METRICS"
	Logs    Signal = "LOGS"
)

// Config says where signals go.
type Config struct {
	Env      func(string) string
	Endpoint string // where no variable says any; empty: port 4318 of this machine

	Wait time.Duration // before a request is made again; doubles each time; 0: half a second

	// Hurry is closed when the process ends: then a collector that cannot be reached is not tried again.
	Hurry <-chan struct{}
}

// Endpoint returns the variable with the endpoint of a signal alone.
func (s Signal) Endpoint() string { return "OTEL_EXPORTER_OTLP_" + string(s) + "_ENDPOINT" }

// client sends the requests of one signal.
type client struct {
	url     string
	headers http.Header
	gzip    bool
	limit   time.Duration // for one request with all its tries
	wait    time.Duration
	hurry   <-chan struct{}
	http    *http.Client
}

// newClient reads the variables.
func newClient(c Config, s Signal) (*client, error) {
	of := func(name string) (value, variable string) {
		own, all := "OTEL_EXPORTER_OTLP_"+string(s)+"_"+name, "OTEL_EXPORTER_OTLP_"+name
		if v := c.Env(own); v != "" {
			return v, own
		}
		return c.Env(all), all
	}
	at := c.Env(s.Endpoint())
	if at == "" {
		base := cmp.Or(c.Env("OTEL_EXPORTER_OTLP_ENDPOINT"), c.Endpoint, defaultEndpoint)
		at = strings.TrimSuffix(base, "/") + "/v1/" + strings.ToLower(string(s))
	}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("send %s to %.200q: that is no address of HTTP (give one such as %s)",
			strings.ToLower(string(s)), at, defaultEndpoint)
	}
	out := &client{url: at, limit: defaultTimeout, wait: cmp.Or(c.Wait, defaultWait), hurry: c.Hurry,
		headers: http.Header{}}
	value, variable := of("HEADERS")
	for pair := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, text, found := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(text))
		if !found || err != nil {
			return nil, fmt.Errorf("read %s: it is no list of NAME=VALUE, with %%XX for special characters", variable)
		}
		out.headers.Set(strings.TrimSpace(name), plain)
	}
	if value, variable = of("TIMEOUT"); value != "" {
		ms, err := strconv.Atoi(value)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("read %s: %.40q is no number of milliseconds", variable, value)
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

// secured reads the files with certificates.
func secured(of func(string) (value, variable string)) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path, variable := of("CERTIFICATE"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the file of %s: %w", variable, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read the file of %s: it has no certificate in the form of PEM", variable)
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

// send sends a request, again where the collector asks for that or cannot be reached.
func (c *client) send(ctx context.Context, message any) error {
	body, err := json.Marshal(message)
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
		var hurry <-chan struct{}
		if next == unreachable {
			hurry = c.hurry
		}
		timer := time.NewTimer(min(max(wait, after), longestWait))
		select {
		case <-timer.C:
		case <-hurry:
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

// verdict is whether a request that has failed may succeed later.
type verdict int

const (
	fails       verdict = iota // it does not
	unreachable                // nobody has answered
	busy                       // the collector has no time
)

// post makes one request, and says after which time another may succeed.
func (c *client) post(ctx context.Context, body []byte) (next verdict, after time.Duration, err error) {
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
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // it is for the error only
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

// bare is an error of HTTP without the address, which the caller says.
func bare(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused is the error of a collector that took a request in part only.
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

func (c *client) close() { c.http.CloseIdleConnections() }
