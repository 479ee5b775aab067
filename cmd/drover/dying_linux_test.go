package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestDyingHost asks a host for something that is killed before it has heard of it:
// the next host does it.
func TestDyingHost(t *testing.T) {
	bin := build(t)
	for name, test := range dyings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

func dyings() cases {
	return cases{
		"run": func(t *testing.T, p *place) {
			p.good("run", "-d", "--", "true")
			r := p.late(2, func() *running { return p.start("run", "-d", "--name", "late", "--", "true") })
			if r.code != 0 || r.stderr != "" {
				t.Errorf("%+v", r)
			}
			p.good("wait", "late")
		},
		"batch": func(t *testing.T, p *place) {
			p.good("run", "-d", "--", "true")
			r := p.late(2, func() *running { return p.startTyping("true\ntrue\n", "run", "--batch", "-") })
			if r.code != 0 || r.stderr != "" || len(r.lines) != 2 {
				t.Fatalf("%+v", r)
			}
			p.good("wait", r.lines[0], r.lines[1])
		},
		"prompt": func(t *testing.T, p *place) {
			id, free := p.held()
			r := p.late(4, func() *running { return p.start("-p", "-d", "--resume", id, "more") })
			if r.code != 0 {
				t.Errorf("%+v", r)
			}
			free()
			p.ended(id)
			if said := p.good("result", id).stdout(); said != "the second" {
				t.Errorf("said %q", said)
			}
		},
		"attach": func(t *testing.T, p *place) {
			id, free := p.held()
			r := p.late(2, func() *running { return p.startTyping("more\n", "attach", id) })
			free()
			if r.code != 0 || !strings.Contains(r.stdout(), "the second") {
				t.Errorf("%+v", r)
			}
		},
	}
}

// held is a conversation whose first prompt is not answered before free.
func (p *place) held() (id string, free func()) {
	p.t.Helper()
	wait := make(chan struct{})
	s := p.model(map[string][]step{"main": {held(wait, says("the first")), says("the second")}})
	id = p.good("-p", "-d", "one").stdout()
	if !within(patience, func() bool { return len(s.Requests()) > 0 }) {
		p.t.Fatal("the model is not asked")
	}
	return id, func() { close(wait) }
}

// late starts a client of the one host while that stands still, and kills the host
// when the client has asked: that is its last connection, behind those that look
// whether the host lives.
func (p *place) late(last int, start func() *running) result {
	p.t.Helper()
	var hosts []proc
	if !within(patience, func() bool { hosts = p.hosts(); return len(hosts) == 1 }) { // a child looks like it before its program runs
		p.t.Fatalf("hosts: %v", hosts)
	}
	p.halt(hosts[0].pid)
	before := p.connections() // others may have been left open
	r := start()
	asks := within(patience, func() bool { return p.connections() >= before+last })
	if err := syscall.Kill(hosts[0].pid, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	if !asks {
		p.t.Error("the host was not asked")
	}
	return r.wait()
}

// halt stops a process, and returns when each of its threads stands still.
func (p *place) halt(pid int) {
	p.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	if !within(patience, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(file string) bool {
			status, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(status), "State:\tT")
		})
	}) {
		p.t.Fatal("the host does not stop")
	}
}

// connections counts those to the sockets of the place, and the sockets.
func (p *place) connections() int {
	p.t.Helper()
	all, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Count(string(all), p.sockets()+"/")
}
