package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/test/modeltest"
)

// station is another machine, whose agents are offered by A2A.
type station struct {
	*place
	r  *running
	at string // the address of its card
}

const cloudToken = "cloud-token-0123456789"

// serveAgents starts the server of a place. Its agents may use all tools.
func (p *place) serveAgents(listen string, more ...string) *station {
	p.t.Helper()
	s := &station{place: p}
	s.userSettings(object{"permissions": object{"defaultMode": "bypassPermissions"}})
	s.file("token", cloudToken)
	s.r = s.start(append([]string{"serve", "--a2a", "--listen", listen, "--token-file", "token"}, more...)...)
	s.at = s.r.until("agent-card.json")
	s.t.Cleanup(s.end)
	return s
}

// end ends the server as a shutdown would.
func (s *station) end() {
	if s.r != nil {
		_ = s.r.cmd.Process.Signal(syscall.SIGTERM)
		s.r.wait()
		s.r = nil
	}
}

// userSettings writes those of the user of a place.
func (p *place) userSettings(settings object) {
	p.t.Helper()
	raw, err := json.Marshal(settings)
	if err != nil {
		p.t.Fatal(err)
	}
	dir := filepath.Join(p.work, "config", "drover")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), raw, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// uses makes a service known at a place.
func (p *place) uses(at string) {
	p.env = append(p.env, "CLOUD_TOKEN="+cloudToken)
	p.userSettings(object{"remote": object{"services": object{"cloud": object{"url": at, "tokenEnv": "CLOUD_TOKEN"}}}})
}

// shown waits until ps shows what is wanted of the only task.
func (p *place) shown(want func(object) bool) object {
	p.t.Helper()
	var last []object
	if !within(patience, func() bool {
		last = p.tasks("-a")
		return len(last) == 1 && want(last[0])
	}) {
		p.t.Fatalf("tasks %v", last)
	}
	return last[0]
}

// served are the agents of the server.
func (p *place) served() []object {
	var out []object
	for _, o := range p.tasks("-a", "--all-sessions") {
		if o["task_type"] == "local_agent" {
			out = append(out, o)
		}
	}
	return out
}

func working(o object) bool {
	progress, _ := o["progress"].(map[string]any)
	far, _ := progress["remote"].(map[string]any)
	return o["status"] == "running" && far["session_id"] != nil
}

// sidecars are the files of remote tasks.
func (p *place) sidecars() []string {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.work, "state", "projects", "*", "*", "remote", "*.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	return files
}

// killHosts ends the detached hosts of a place by KILL.
func (p *place) killHosts() {
	p.t.Helper()
	n := 0
	for _, one := range marked(p.work) {
		if strings.HasSuffix(one.line, "drover host") {
			_ = syscall.Kill(one.pid, syscall.SIGKILL)
			n++
		}
	}
	if n == 0 {
		p.t.Fatal("there is no host")
	}
	if !within(patience, func() bool { return len(marked(p.work)) == 0 }) {
		p.t.Fatalf("left: %v", marked(p.work))
	}
}

// unused is an address at which nothing listens.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestRemote has work done on another machine, which is another place here, by Drover's own A2A server.
func TestRemote(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(t *testing.T, here, there *place){
		"answer": func(t *testing.T, p, there *place) {
			m := there.model(map[string][]step{"general-purpose": {calls("Bash", bash("echo one")), says("all is done")}})
			p.uses(there.serveAgents("127.0.0.1:0").at)
			if got := p.good("remote", "run", "do it").stdout(); got != "all is done" {
				t.Errorf("stdout %q", got)
			}
			if got := of(m, "general-purpose")[1].LastText(); !strings.Contains(got, "one") {
				t.Errorf("the agent there saw %s", got)
			}
			o := p.tasks("-a")[0]
			progress, _ := o["progress"].(map[string]any)
			far, _ := progress["remote"].(map[string]any)
			if o["task_type"] != "remote_agent" || o["prompt"] != "do it" || far["remote_task_type"] != "remote-agent" || !strings.HasPrefix(far["host"].(string), "127.0.0.1:") {
				t.Errorf("task %v", o)
			}
			if got := p.good("result", far["session_id"].(string)).stdout(); got != "all is done" {
				t.Errorf("by its session elsewhere: %q", got)
			}
			if theirs := there.served(); len(theirs) != 1 {
				t.Fatalf("%d agents", len(theirs))
			}
			if got := p.good("logs", o["task_id"].(string)).stdout(); got != "all is done" {
				t.Errorf("output %q", got)
			}
			if left := p.sidecars(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		},
		"refused": func(t *testing.T, p, there *place) {
			p.fails(2, []string{"remote", "run", "do it"}, "no remote service is named")
			p.fails(2, []string{"remote", "run", "--service", "nowhere", "do it"}, "nowhere", "not in the settings")
			p.fails(2, []string{"remote", "run", "--service", "http://example.com/agent-card.json", "do it"}, "neither https nor on this machine")
			p.fails(2, []string{"remote", "run", "--type", "cloud", "--service", "http://127.0.0.1:1/agent-card.json", "do it"}, "cloud", "not known")
			p.fails(2, []string{"remote", "run", "--service", "https://example.com/drover", "do it"}, "session API was removed", "drover serve --a2a")
			p.fails(2, []string{"remote", "run"}, "an argument is missing")
			p.fails(2, []string{"remote", "serve"}, "serve")
		},
		"denied": func(t *testing.T, p, there *place) {
			s := there.serveAgents("127.0.0.1:0")
			p.env = append(p.env, "CLOUD_TOKEN=wrong")
			p.userSettings(object{"remote": object{"services": object{"cloud": object{"url": s.at, "tokenEnv": "CLOUD_TOKEN"}}}})
			p.file(".drover/settings.json", `{"remote":{"services":{"evil":{"url":"https://example.com/agent-card.json"}},"checkers":{"remote-agent":"touch owned"}}}`)
			p.fails(1, []string{"remote", "run", "do it"}, "401")
			if r := p.run("remote", "run", "--trust", "do it"); r.code == 0 {
				t.Error("an unknown flag was taken")
			}
			p.good("trust", "--yes")
			p.killHosts() // the next one reads the settings of a trusted folder
			if r := p.run("remote", "run", "--service", "evil", "do it"); r.code != 2 || !strings.Contains(r.stderr, "evil") {
				t.Errorf("a project named a service: exit code %d, %s", r.code, r.stderr)
			}
			if m := there.served(); len(m) > 0 {
				t.Errorf("agents %v", m)
			}
		},
		"killed": func(t *testing.T, p, there *place) {
			free := make(chan struct{})
			there.model(map[string][]step{"general-purpose": {calls("Bash", bash("seq 5000")), held(free, says("the end"))}})
			p.uses(there.serveAgents("127.0.0.1:0").at)
			id := p.good("remote", "run", "-d", "do it").stdout()
			p.shown(working)
			if n := len(p.sidecars()); n != 1 {
				t.Errorf("%d sidecars", n)
			}
			p.killHosts()
			if o := p.shown(working); o["task_id"] != id { // asking for it starts the next host
				t.Errorf("task %v", o)
			}
			close(free)
			p.good("wait", id)
			if got := p.good("result", id).stdout(); got != "the end" {
				t.Errorf("result %q", got)
			}
			if theirs := there.served(); len(theirs) != 1 {
				t.Fatalf("%d agents", len(theirs))
			}
			if got := p.good("logs", id).stdout(); got != "the end" {
				t.Errorf("output %q", got)
			}
			if left := p.sidecars(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		},
		"closed": func(t *testing.T, p, there *place) {
			free := make(chan struct{})
			there.model(map[string][]step{"general-purpose": {held(free, says("far away"))}})
			p.uses(there.serveAgents("127.0.0.1:0").at)
			m := p.model(map[string][]step{"main": {calls("Agent", asks("general-purpose", "do it", "isolation", "remote")), func(r *modeltest.Request) modeltest.Answer {
				within(patience, func() bool { return len(p.sidecars()) == 1 })
				return says("started")(r)
			}, says("I heard of it"), says("I heard of it")}})
			r := p.run("-p", "go", "--no-wait", "--output-format=json")
			if r.code != 0 {
				t.Fatal(r.stderr)
			}
			session, _ := r.objects(t)[0]["session_id"].(string)
			if len(p.sidecars()) != 1 {
				t.Fatalf("sidecars %v", p.sidecars())
			}
			close(free)
			if got := p.good("-p", "and now", "--resume", session).stdout(); got != "I heard of it" {
				t.Errorf("stdout %q", got)
			}
			all := of(m, "main") // the notification came with the prompt, or in a turn after it
			said := strings.Join(texts(t, all[len(all)-1]), "\n")
			holds(t, "the next request", said, "<status>completed</status>", "far away", "Remote agent")
			if left := p.sidecars(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		},
		"tool": func(t *testing.T, p, there *place) {
			go1, free := make(chan struct{}), make(chan struct{})
			far := there.model(map[string][]step{"general-purpose": {held(go1, calls("Bash", bash("echo one"))), held(free, says("far away"))}})
			p.uses(there.serveAgents("127.0.0.1:0").at)
			m := p.model(map[string][]step{"main": {calls("Agent", asks("general-purpose", "do it", "isolation", "remote", "name", "cloud")), says("started"), says("told")}})
			r := p.start("-p", "go", "--output-format=stream-json")
			r.until("remote_launched")
			var id string
			if !within(patience, func() bool {
				for _, o := range p.tasks() {
					id, _ = o["task_id"].(string)
					return working(o)
				}
				return false
			}) {
				t.Fatal("it does not begin")
			}
			p.good("send", id, "look at the tests too")
			close(go1)
			if !within(patience, func() bool { return len(of(far, "general-purpose")) == 2 }) {
				t.Fatal("the agent there does not go on")
			}
			holds(t, "the agent there", strings.Join(texts(t, of(far, "general-purpose")[1]), "\n"), "look at the tests too")
			close(free)
			if res := r.wait(); res.code != 0 {
				t.Fatal(res.stderr)
			}
			holds(t, "the result of the call", of(m, "main")[1].LastText(), "The agent works elsewhere now", id)
			holds(t, "the notification", of(m, "main")[2].LastText(), id, "far away", "completed")
			schema, err := of(m, "main")[0].Params()
			if err != nil {
				t.Fatal(err)
			}
			raw, _ := json.Marshal(schema.Tools)
			if !strings.Contains(string(raw), `"enum":["worktree","remote"]`) {
				t.Error("the tool does not say that agents can be remote")
			}
		},
		"stop": func(t *testing.T, p, there *place) {
			there.model(map[string][]step{"general-purpose": {calls("Bash", bash("sleep 1000"))}})
			s := there.serveAgents("127.0.0.1:0")
			p.uses(s.at)
			id := p.good("remote", "run", "-d", "do it").stdout()
			p.shown(working)
			if got := p.good("ps").stdout(); !strings.Contains(got, "◇ 1 cloud session") {
				t.Errorf("ps shows %s", got)
			}
			p.good("stop", id)
			if o := p.shown(func(o object) bool { return o["status"] == "killed" }); o["cause"].(map[string]any)["actor"] != "user" {
				t.Errorf("task %v", o)
			}
			for _, o := range there.tasks("-a", "--all-sessions") {
				if o["status"] != "killed" {
					t.Errorf("there: %v", o)
				}
			}
			if left := p.sidecars(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			second := p.good("remote", "run", "-d", "again").stdout()
			if !within(patience, func() bool {
				return len(p.tasks()) == 1 && working(p.tasks()[0])
			}) {
				t.Fatal("the second does not begin")
			}
			s.end() // nobody can be told now
			r := p.run("stop", second, "--json")
			if !strings.Contains(r.stdout(), "remote task a2a-") {
				t.Errorf("the receipt does not name what is left: %s", r.stdout())
			}
		},
		"restart": func(t *testing.T, p, there *place) {
			free := make(chan struct{})
			there.model(map[string][]step{"general-purpose": {held(free, says("after the restart"))}})
			s := there.serveAgents("127.0.0.1:0")
			p.uses(s.at)
			id := p.good("remote", "run", "-d", "do it").stdout()
			p.shown(working)
			s.end()
			at, err := url.Parse(s.at)
			if err != nil {
				t.Fatal(err)
			}
			close(free)
			there.serveAgents(at.Host)
			p.good("wait", id)
			if got := p.good("result", id).stdout(); got != "after the restart" {
				t.Errorf("result %q", got)
			}
			if theirs := there.served(); len(theirs) != 1 {
				t.Errorf("%d agents", len(theirs))
			}
		},
		"rough": func(t *testing.T, p, there *place) {
			there.model(map[string][]step{"general-purpose": {calls("Bash", bash("seq 2000")), says("through it all")}})
			var pass atomic.Pointer[httputil.ReverseProxy]
			var n atomic.Int64
			rough := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch n.Add(1) % 9 { // one in three
				case 1:
					w.Header().Set("Retry-After", "0")
					http.Error(w, "slow down", http.StatusTooManyRequests)
				case 4:
					http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
				case 7:
					w.Header().Set("Content-Type", "text/html")
					_, _ = w.Write([]byte("<html>log in to the hotel</html>"))
				default:
					pass.Load().ServeHTTP(w, r)
				}
			}))
			defer rough.Close()
			to := unused(t)
			there.serveAgents(to, "--url", rough.URL)
			pass.Store(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to}))
			p.uses(rough.URL + a2a.CardPath)
			if got := p.good("remote", "run", "do it").stdout(); got != "through it all" {
				t.Errorf("stdout %q", got)
			}
			if theirs := there.served(); len(theirs) != 1 {
				t.Fatalf("%d agents", len(theirs))
			}
		},
		"offline": func(t *testing.T, p, _ *place) {
			at := "http://" + unused(t) + a2a.CardPath
			p.userSettings(object{"remote": object{"services": object{"cloud": object{"url": at}}, "offline": "2s"}})
			begin := time.Now()
			p.fails(1, []string{"remote", "run", "do it"}, "no usable answer for")
			if took := time.Since(begin); took < 2*time.Second {
				t.Errorf("given up after %s", took)
			}
			if o := p.tasks("-a")[0]; o["status"] != "failed" || o["cause"].(map[string]any)["reason"] != "unreachable" {
				t.Errorf("task %v", o)
			}
		},
		"checker": func(t *testing.T, p, there *place) {
			there.model(map[string][]step{"general-purpose": {says("pushed")}})
			p.env = append(p.env, "CLOUD_TOKEN="+cloudToken)
			p.userSettings(object{"remote": object{"services": object{"cloud": object{"url": there.serveAgents("127.0.0.1:0").at, "tokenEnv": "CLOUD_TOKEN"}},
				"checkers": object{"autofix-pr": `cat >> seen; echo "token=$CLOUD_TOKEN" >> seen; test -e merged && echo "pull request 7 was merged"; exit 0`}}})
			id := p.good("remote", "run", "-d", "--type", "autofix-pr", "--metadata", `{"pr":7}`, "fix it").stdout()
			seen := filepath.Join(p.dir, "seen")
			if !within(patience, func() bool { data, _ := os.ReadFile(seen); return strings.Count(string(data), `"pr":7`) >= 2 }) {
				t.Fatal("the checker is not asked")
			}
			p.file("merged", "")
			p.good("wait", id)
			if got := p.good("result", id).stdout(); got != "pull request 7 was merged" {
				t.Errorf("result %q", got)
			}
			if data, _ := os.ReadFile(seen); strings.Contains(string(data), cloudToken) {
				t.Error("the checker was given the token")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin), newPlace(t, bin))
		})
	}
}
