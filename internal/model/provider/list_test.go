package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/model/provider"
)

// A provider says by its list of models whether it takes the key, which goes nowhere else.
func TestList(t *testing.T) {
	mux := http.NewServeMux()
	lists := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "good" && r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"one"},{"id":"two"}]}`)
	}
	mux.HandleFunc("GET /v1/models", lists)
	mux.HandleFunc("GET /team/v1/models", lists)
	mux.HandleFunc("GET /empty/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"object":"list","data":null}`) })
	mux.HandleFunc("GET /page/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) })
	mux.HandleFunc("GET /broken/models", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("GET /moved/models", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/v1/models", http.StatusFound)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	gone := httptest.NewServer(mux)
	gone.Close()
	two := []string{"one", "two"}
	for name, c := range map[string]struct {
		ask  provider.Access
		want []string
		says string
	}{
		"a key of Anthropic":   {provider.Access{Provider: "anthropic", BaseURL: s.URL, APIKey: "good"}, two, ""},
		"a token of a gateway": {provider.Access{Provider: "anthropic", BaseURL: s.URL + "/team/", AuthToken: "good"}, two, ""},
		"a key of OpenAI":      {provider.Access{Provider: "openai", BaseURL: s.URL + "/v1", APIKey: "good"}, two, ""},
		"without a path":       {provider.Access{Provider: "openai", BaseURL: s.URL, APIKey: "good"}, two, ""},
		"no models":            {provider.Access{Provider: "openai", BaseURL: s.URL + "/empty"}, []string{}, ""},
		"no list":              {provider.Access{Provider: "openai", BaseURL: s.URL + "/none", APIKey: "good"}, nil, ""},
		"refused":              {provider.Access{Provider: "openai", BaseURL: s.URL, APIKey: "bad"}, nil, "refused the key (403 Forbidden)"},
		"no key":               {provider.Access{Provider: "openai", BaseURL: s.URL}, nil, "wants a key (403 Forbidden)"},
		"a page":               {provider.Access{Provider: "openai", BaseURL: s.URL + "/page"}, nil, "not as a server of models does"},
		"broken":               {provider.Access{Provider: "openai", BaseURL: s.URL + "/broken"}, nil, "answers with 502 Bad Gateway"},
		"moved":                {provider.Access{Provider: "openai", BaseURL: s.URL + "/moved", APIKey: "good"}, nil, "answers with 302 Found"},
		"nobody":               {provider.Access{Provider: "openai", BaseURL: gone.URL}, nil, "does not answer: nothing listens there"},
		"no address":           {provider.Access{Provider: "openai", BaseURL: "localhost:4000"}, nil, "is not an address"},
		"a cut key":            {provider.Access{Provider: "openai", BaseURL: s.URL, APIKey: "go od"}, nil, "blanks"},
	} {
		got, err := provider.List(t.Context(), c.ask)
		if !slices.Equal(got, c.want) || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
