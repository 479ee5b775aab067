package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDyingHost asks a host for something that is killed before it has heard of it:
// the next host does it.
func TestDyingHost(t *testing.T) {
	bin := build(t)
	for name, test := range dyings(buildWith(t, "-tags", "failpoint")) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// dyings are the tests of it. A client of the build with fail points can be held.
func dyings(held string) cases {
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
			r := p.with(held).found(1, func(p *place) *running { return p.start("-p", "-d", "--resume", id, "more") })
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
			r := p.with(held).found(1, func(p *place) *running { return p.startTyping("more\n", "attach", id) })
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
	host := p.host()
	p.halt(host)
	before := p.connections() // others may have been left open
	r := start()
	return p.dies(host, before+last, r)
}

// found is late for a client that asks no host which stands still: the host is stopped
// when the client has found it, and has not asked.
func (p *place) found(last int, start func(*place) *running) result {
	p.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dr") // the path of a socket must be short, and is not to be counted
	if err != nil {
		p.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "fault"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer l.Close()
	host := p.host()
	client := *p
	client.env = append(slices.Clone(p.env), "DROVER_FAULT=host/found", "DROVER_FAULT_SOCKET="+l.Addr().String())
	r := start(&client)
	if err := l.(*net.UnixListener).SetDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		p.t.Fatalf("the client finds no host: %v", err)
	}
	p.halt(host)
	before := p.connections()
	_ = l.Close() // the client is not held again
	if err := c.Close(); err != nil {
		p.t.Fatal(err)
	}
	return p.dies(host, before+last, r)
}

// host is the one host.
func (p *place) host() (pid int) {
	p.t.Helper()
	var hosts []proc
	if !within(patience, func() bool { hosts = p.hosts(); return len(hosts) == 1 }) { // a child looks like it before its program runs
		p.t.Fatalf("hosts: %v", hosts)
	}
	return hosts[0].pid
}

// dies kills a host when there are so many connections.
func (p *place) dies(host, connections int, r *running) result {
	p.t.Helper()
	asks := within(patience, func() bool { return p.connections() >= connections })
	if err := syscall.Kill(host, syscall.SIGKILL); err != nil {
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
