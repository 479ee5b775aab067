package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/modeltest"
)

// promptFailures are tests of models that cannot be reached or do not answer.
func promptFailures() cases {
	fault := func(a modeltest.Answer, say ...string) func(*testing.T, *place) {
		return func(t *testing.T, p *place) {
			always := func(*modeltest.Request) modeltest.Answer { return a }
			p.model(map[string][]step{"main": slices.Repeat([]step{always}, 20)})
			p.fails(1, []string{"-p", "go"}, say...)
		}
	}
	return cases{
		"nokey": func(_ *testing.T, p *place) { p.fails(1, []string{"-p", "go"}, "ANTHROPIC_API_KEY") },
		"provider": func(_ *testing.T, p *place) {
			p.fails(1, []string{"-p", "go", "--model", "nobody/best"}, "nobody")
		},
		"noscript": func(_ *testing.T, p *place) {
			p.fails(1, []string{"-p", "go", "--model", "script:none.yaml"}, "none.yaml")
		},
		"badscript": func(_ *testing.T, p *place) {
			p.file("bad.yaml", "version: 1\nagents:\n  main:\n    - txt: x\n")
			p.fails(1, []string{"-p", "go", "--model", "script:bad.yaml"}, "bad.yaml", "txt")
		},
		"scriptend": func(_ *testing.T, p *place) {
			p.file("s.yaml", "version: 1\nagents:\n  main:\n    - tools: [{name: Bash, input: {command: echo}}]\n")
			p.fails(1, []string{"-p", "go", "--model", "script:s.yaml", "--allowed-tools=Bash"}, "s.yaml", "main")
		},
		"refusedkey": fault(modeltest.Error(http.StatusUnauthorized, "authentication_error", "invalid x-api-key"), "ANTHROPIC_API_KEY", "invalid x-api-key"),
		"badrequest": fault(modeltest.Error(http.StatusBadRequest, "invalid_request_error", "credit balance is too low"), "credit balance is too low"),
		"html":       fault(modeltest.HTML(http.StatusOK, "<html>\n<h1>Login</h1></html>"), "text/html"),
		"html403":    fault(modeltest.HTML(http.StatusForbidden, "<html>no</html>"), "refused the key"),
		"unreachable": func(_ *testing.T, p *place) {
			p.env = append(p.env, "ANTHROPIC_BASE_URL=http://127.0.0.1:1/", "ANTHROPIC_API_KEY=k")
			r := p.run("-p", "go")
			if r.code != 1 || strings.Count(r.stderr, "drover: model call failed: 127.0.0.1:1 cannot be reached: ") != 2 || strings.Count(r.stderr, "\n") != 3 {
				p.t.Errorf("exit code %d\n%s", r.code, r.stderr)
			}
		},
		"ratelimit": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer { return modeltest.RateLimit("1") }, says("after all")}})
			begin := time.Now()
			all := p.good("-p", "go", "--output-format=stream-json").objects(t)
			if took := time.Since(begin); took < time.Second || m.Count() != 2 {
				t.Errorf("%d requests in %s; Retry-After was 1 s", m.Count(), took)
			}
			if got := kindsOf(all); !slices.Equal(got, []string{"init", "api_retry", "assistant", "result"}) {
				t.Errorf("lines %v", got)
			}
		},
		"torn": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer {
				a := modeltest.Text(strings.Repeat("x", 500))
				a.Break, a.Reset, a.CutAt = true, true, 600
				return a
			}, says("whole")}})
			r := p.run("-p", "go")
			if r.code != 0 || r.stdout() != "whole" || !strings.HasPrefix(r.stderr, "drover: model call failed: ") || !strings.Contains(r.stderr, "connection reset (retry 1 of 9 in ") {
				t.Errorf("exit code %d, %q\n%s", r.code, r.stdout(), r.stderr)
			}
		},
		"errorresult": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer { return modeltest.Error(400, "invalid_request_error", "bad") }}})
			r := p.run("-p", "go", "--output-format=stream-json")
			r.failed(t, 1, "bad")
			all := r.objects(t)
			last := all[len(all)-1]
			if last["type"] != "result" || last["subtype"] != "error_during_execution" || last["terminal_reason"] != "model_error" || last["is_error"] != true {
				t.Errorf("last line %v", last)
			}
		},
	}
}
