package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/model/anthropic"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/internal/model/openai"
)

const (
	listWait  = 15 * time.Second
	localWait = 700 * time.Millisecond
	mostList  = 4 << 20 // bytes of a list of models
)

// Access says how to reach a provider. An empty BaseURL means the provider's own address.
type Access struct {
	Provider          string // anthropic or openai
	BaseURL           string
	APIKey, AuthToken string
}

// List asks a provider for its models, the newest of most providers first, and so checks the key. It
// returns an empty list from a server without such a list, which may still refuse the key.
func List(ctx context.Context, a Access) ([]string, error) {
	ctx, done := context.WithTimeout(ctx, listWait)
	defer done()
	return list(ctx, a)
}

func list(ctx context.Context, a Access) ([]string, error) {
	address, err := a.models()
	for _, secret := range []string{a.APIKey, a.AuthToken} {
		err = cmp.Or(err, modelwire.CheckSecret(a.Provider, secret, "it"))
	}
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its models: %w", address.Host, err)
	}
	token := a.AuthToken
	if a.Provider == "anthropic" {
		req.Header.Set("Anthropic-Version", "2023-06-01")
		if a.APIKey != "" {
			req.Header.Set("X-Api-Key", a.APIKey)
		}
	} else if a.APIKey != "" {
		token = a.APIKey
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := modelwire.Client(nil)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	var reached *url.Error
	if errors.As(err, &reached) { // without the address, which the message has already
		err = reached.Err
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%s does not answer: nothing listens there", address.Host)
	case errors.As(err, new(*net.DNSError)):
		return nil, fmt.Errorf("no host is named %s (is this machine online?)", address.Hostname())
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%s does not answer", address.Host)
	case err != nil:
		return nil, fmt.Errorf("%s cannot be reached: %w", address.Host, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		if a.APIKey == "" && a.AuthToken == "" {
			return nil, fmt.Errorf("%s wants a key (%s)", address.Host, resp.Status)
		}
		return nil, fmt.Errorf("%s refused the key (%s)", address.Host, resp.Status)
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusMethodNotAllowed:
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers with %s", address.Host, resp.Status)
	}
	var found struct {
		Object string `json:"object"`
		Data   []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, mostList)).Decode(&found)
	if err != nil || found.Data == nil && found.Object != "list" {
		return nil, fmt.Errorf("%s answers, but not as a server of models does", address.Host)
	}
	names := make([]string, 0, len(found.Data))
	for _, m := range found.Data {
		if m.ID != "" {
			names = append(names, m.ID)
		}
	}
	return names, nil
}

// models returns the address of the list.
func (a Access) models() (*url.URL, error) {
	base, path := a.BaseURL, "/models"
	switch {
	case a.Provider == "anthropic" && base == "":
		base = anthropic.DefaultBaseURL
	case base == "":
		base = openai.DefaultBaseURL
	}
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%.80q is not an address such as https://gateway.example.com", base)
	}
	if a.Provider == "anthropic" || u.Path == "" { // as its calls go
		path = "/v1/models"
	}
	return u.JoinPath(path), nil
}

// Local is a running server of models on this machine.
type Local struct {
	Name    string
	BaseURL string
	Models  []string
}

// locals returns the servers that FindLocal looks for, at their usual ports.
func locals() []Local {
	return []Local{{Name: "Ollama", BaseURL: "http://127.0.0.1:11434/v1"}, {Name: "LM Studio", BaseURL: "http://127.0.0.1:1234/v1"},
		{Name: "llama.cpp", BaseURL: "http://127.0.0.1:8080/v1"}, {Name: "vLLM", BaseURL: "http://127.0.0.1:8000/v1"}}
}

// FindLocal looks for servers of models on this machine.
func FindLocal(ctx context.Context) []Local {
	ctx, done := context.WithTimeout(ctx, localWait)
	defer done()
	all := locals()
	answers := make([]chan error, len(all))
	for i := range all {
		answers[i] = make(chan error, 1)
		go func() { // ends with ctx
			var err error
			all[i].Models, err = list(ctx, Access{Provider: "openai", BaseURL: all[i].BaseURL})
			answers[i] <- err
		}()
	}
	var found []Local
	for i, answer := range answers {
		if err := <-answer; err == nil && all[i].Models != nil {
			found = append(found, all[i])
		}
	}
	return found
}
