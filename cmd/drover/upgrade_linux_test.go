package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/test/harness"
)

// buildAs builds the program under a version.
func buildAs(t *testing.T, version string) string {
	t.Helper()
	return buildWith(t, "-ldflags", "-s -w -X github.com/drover-dev/drover/internal/platform/buildinfo.version="+version)
}

// buildWith builds the program with further flags.
func buildWith(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := harness.Build(filepath.Join(dir, "drover"), flags...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// with is the same place with another build of the program first on the PATH.
func (p *place) with(bin string) *place {
	other := *p
	other.env = slices.Clone(p.env)
	for i, kv := range other.env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			other.env[i] = "PATH=" + bin + string(os.PathListSeparator) + path
		}
	}
	return &other
}

// versions are those of the live sessions.
func (p *place) versions() (all []string) {
	p.t.Helper()
	for _, o := range p.live() {
		all = append(all, fmt.Sprint(o["version"]))
	}
	return all
}

func (p *place) live() []object {
	p.t.Helper()
	var all []object
	if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
		p.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(o object) bool { return o["live"] != true })
}

// objectOf is a task as inspect has it.
func (p *place) objectOf(id string) object {
	p.t.Helper()
	var o object
	if err := json.Unmarshal([]byte(p.good("inspect", "--json", id).stdout()), &o); err != nil {
		p.t.Fatal(err)
	}
	return o
}

// TestUpgrade has faces and hosts of two builds meet.
func TestUpgrade(t *testing.T) {
	builds := map[string]string{"1.0.0": buildAs(t, "1.0.0"), "2.0.0": buildAs(t, "2.0.0")}
	for _, c := range []struct{ host, face string }{{"1.0.0", "2.0.0"}, {"2.0.0", "1.0.0"}} {
		t.Run("host-"+c.host, func(t *testing.T) {
			host := newPlace(t, builds[c.host])
			face := host.with(builds[c.face])
			first := host.good("run", "-d", "--", "bash", "-c", "echo first; sleep 621").stdout()
			second := face.good("run", "-d", "--", "bash", "-c", "echo second; sleep 622").stdout()
			if v := face.versions(); len(v) != 1 || v[0] != c.host {
				t.Fatalf("versions %v, want that of the host, %s", v, c.host)
			}
			holds(t, "ps", face.good("ps").stdout(), first, second)
			if !within(patience, func() bool { return face.good("logs", first).stdout() == "first" }) {
				t.Error("the first has printed nothing")
			}
			holds(t, "the receipt", face.good("stop", first).stdout(), first, "killed")
			watch := face.start("attach", second)
			watch.until("second")
			holds(t, "the second receipt", face.good("stop", second).stdout(), second, "killed")
			if r := watch.wait(); r.code != 143 {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			host.model(map[string][]step{"main": {says("one"), says("two")}})
			face = host.with(builds[c.face])
			id := host.good("-p", "-d", "go").stdout()
			if r := face.typing("and on\n", "attach", id); r.code != 0 || !strings.HasSuffix(r.stdout(), "two") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
		})
	}

	t.Run("replaced", func(t *testing.T) {
		bin := t.TempDir()
		put := func(version string) { // as an installer does
			t.Helper()
			data, err := os.ReadFile(filepath.Join(builds[version], "drover"))
			if err == nil {
				err = os.WriteFile(filepath.Join(bin, "new"), data, 0o700)
			}
			if err == nil {
				err = os.Rename(filepath.Join(bin, "new"), filepath.Join(bin, "drover"))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		put("1.0.0")
		p := newPlace(t, bin)
		plain := p.good("run", "-d", "--", "sleep", "623").stdout()
		kept := p.good("run", "-d", "--keep", "--", "sleep", "624").stdout()
		put("2.0.0")
		holds(t, "the version", p.good("version").stdout(), "2.0.0")
		if again := p.good("run", "-d", "--", "echo", "it").stdout(); p.run("wait", again).code != 0 {
			t.Error("the host of the old build takes no task any more")
		}
		if v := p.versions(); len(v) != 1 || v[0] != "1.0.0" {
			t.Errorf("versions %v: the host of the old build was displaced", v)
		}
		for _, h := range p.hosts() {
			if err := syscall.Kill(h.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		p.leaves(patience, "sleep 623") // its keeper is of the old build too
		p.alive("sleep 624")
		if r := p.objectOf(plain); r["status"] != "killed" {
			t.Errorf("the task of the dead host is %v", r["status"])
		}
		p.good("ps") // the kept one gets a host, of the new build
		if v := p.versions(); len(v) != 1 || v[0] != "2.0.0" {
			t.Errorf("versions %v", v)
		}
		if r := p.objectOf(kept); r["status"] != "running" {
			t.Errorf("the kept task is %v", r["status"])
		}
		p.good("stop", kept)
		p.leaves(patience, "sleep 624")
	})

	t.Run("protocol", func(t *testing.T) {
		p := newPlace(t, builds["1.0.0"])
		id := p.good("run", "-d", "--", "sleep", "625").stdout()
		socket := fmt.Sprint(p.live()[0]["socket"])
		req, err := http.NewRequest(http.MethodGet, "http://drover/v1/info", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Drover-Protocol", "9")
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("status %d, %v", resp.StatusCode, err)
		}
		holds(t, "the refusal", string(body), `speaks protocol \"9\"`, `\"1\"`)

		// A host that speaks another, in the place of this one.
		p.good("stop", id)
		served := p.posing(socket)
		r := p.run("logs", id)
		r.failed(t, 1, `protocol "9"`, "use the drover that started the session")
		_ = served.Close()
	})
}

// posing takes the place of a host that goes on elsewhere, and answers in another
// protocol.
func (p *place) posing(socket string) net.Listener {
	p.t.Helper()
	if err := os.Remove(socket); err != nil {
		p.t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = l.Close() })
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Drover-Protocol", "9") })}
	go func() { _ = srv.Serve(l) }() // ends with its listener
	return l
}

// TestDisplaced stops a host whose socket somebody else has in the meantime: it
// stays.
func TestDisplaced(t *testing.T) {
	p := newPlace(t, build(t))
	p.good("run", "-d", "--", "sleep", "626")
	socket := fmt.Sprint(p.live()[0]["socket"])
	p.posing(socket)
	before, err := os.Lstat(socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range p.hosts() {
		if err := syscall.Kill(h.pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	p.leaves(patience, "drover")
	if after, err := os.Lstat(socket); err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket of the successor is gone: %v", err)
	}
	if _, err := net.Dial("unix", socket); err != nil {
		t.Errorf("nobody answers for the successor: %v", err)
	}
}

// TestAskingEnvironment starts tasks at one host from faces that differ.
func TestAskingEnvironment(t *testing.T) {
	p := newPlace(t, build(t))
	p.model(map[string][]step{"general-purpose": {calls("Bash", bash("printenv COLOUR PATH")), echo}})
	face := func(colour string) *place {
		other := p.with("/opt/" + colour)
		other.env = append(other.env, "COLOUR="+colour, "ANTHROPIC_API_KEY=sk-secret-"+colour, "DROVER_TASK_ID=b00000000")
		// The program itself is found by its own place, whatever the PATH says.
		return other
	}
	bin := ""
	for _, kv := range p.env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			bin, _, _ = strings.Cut(path, string(os.PathListSeparator))
		}
	}
	var hosts []proc
	for _, colour := range []string{"red", "blue"} {
		f := face(colour)
		run := func(args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "drover"), args...)
			cmd.Dir, cmd.Env = f.dir, f.env
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("drover %q: %v", args, err)
			}
			return strings.TrimSpace(string(out))
		}
		id := run("run", "-d", "--", "printenv")
		run("wait", id)
		got := p.good("logs", id).stdout()
		holds(t, "the command of "+colour, got, "COLOUR="+colour, "PATH=/opt/"+colour+":", "DROVER_TASK_ID="+id)
		if strings.Contains(got, "sk-") || strings.Contains(got, "DROVER_TASK_ID=b00000000") {
			t.Errorf("the command of %s has %s", colour, got)
		}
		agent := run("agent", "run", "-d", "general-purpose", "look", "--allowed-tools", "Bash(printenv:*)")
		run("wait", agent)
		holds(t, "the agent of "+colour, run("result", agent), colour+"\n/opt/"+colour+":")
		now := p.hosts()
		if hosts != nil && (len(now) != 1 || now[0].pid != hosts[0].pid) {
			t.Errorf("hosts %v, then %v", hosts, now)
		}
		hosts = now
	}
}
