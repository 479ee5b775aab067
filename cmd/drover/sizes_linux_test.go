package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// TestSizes: what a host needs does not grow with the length of what it is given.
func TestSizes(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){"commands": sizesCommands, "refused": sizesRefused, "answer": sizesAnswer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// peak is the most memory that the only live host had, in MiB.
func (p *place) peak() int {
	p.t.Helper()
	var all []control.Info
	if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
		p.t.Fatal(err)
	}
	for _, one := range all {
		if !one.Live {
			continue
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", one.PID))
		if err != nil {
			p.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "VmHWM:")
		var kib int
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			p.t.Fatal(err)
		}
		return kib >> 10
	}
	p.t.Fatal("no session is live")
	return 0
}

// sizesCommands: long commands that have ended, and readers that stand still meanwhile, whose
// events are 60 MB in all for each of them.
func sizesCommands(t *testing.T, p *place) {
	const tasks, length, readers = 300, 100_000, 50
	p.good("run", "-d", "--name", "stays", "--", "sleep", "4711")
	socket := p.socket()
	api := control.Dial(socket)
	defer api.Close()
	for range readers {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET /v1/events?after=0 HTTP/1.1\r\nHost: drover\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(c).ReadByte(); err != nil { // and no more
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", length)
	var refs []string
	for range tasks / 50 {
		reqs := make([]control.StartRequest, 50)
		for i := range reqs {
			reqs[i] = control.StartRequest{Cwd: "/", Shell: &control.ShellRequest{Args: []string{"true", long}}}
		}
		started, err := api.Start(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		refs = refs[:0]
		for _, s := range started {
			if s.Error != nil {
				t.Fatal(s.Error)
			}
			refs = append(refs, string(s.Task.ID))
		}
		if _, err := api.Wait(t.Context(), control.WaitRequest{Refs: refs}); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.peak(); n > 300 { // 30 MB of commands; it was more than 1 GB
		t.Errorf("%d commands of %d bytes and %d readers that stand still took %d MiB", tasks, length, readers, n)
	}
	page, err := api.List(t.Context(), control.ListRequest{All: true, Limit: 10})
	if err != nil || len(page.Tasks) != 10 || page.Tasks[0].Command != "true "+long {
		t.Errorf("the listing: %d tasks, %v", len(page.Tasks), err)
	}
	p.good("stop", "stays")
	past := p.inspected(refs[0]) // of the host, or of what it left
	if past.Command != "true "+long || past.CommandBytes != 0 || past.Status != task.Completed {
		t.Errorf("%d bytes of the command are left, %s", len(past.Command), past.Status)
	}
}

// sizesRefused: what is too long is refused by words that name the limit, and costs nothing.
func sizesRefused(t *testing.T, p *place) {
	p.good("run", "-d", "--name", "stays", "--", "sleep", "4711")
	long := func(n int) string { return strings.Repeat("x", n) }
	p.fails(2, []string{"run", "-d", "--name", long(200), "--", "true"}, "the name has 200 bytes", "limit of 128")
	api := control.Dial(p.socket())
	defer api.Close()
	for name, c := range map[string]struct {
		req  control.StartRequest
		want []string
	}{
		"description": {control.StartRequest{Cwd: "/", Description: long(60_000_000), Shell: &control.ShellRequest{Line: "true"}}, []string{"the request has more than the limit"}},
		"text":        {control.StartRequest{Cwd: "/", Description: long(5000), Shell: &control.ShellRequest{Line: "true"}}, []string{"the description has 5000 bytes", "4096"}},
		"argument":    {control.StartRequest{Cwd: "/", Shell: &control.ShellRequest{Args: []string{"true", long(200_000)}}}, []string{"200000 bytes", "131071", "file"}},
		"line":        {control.StartRequest{Cwd: "/", Shell: &control.ShellRequest{Line: "true " + long(200_000)}}, []string{"200005 bytes", "131071", "file"}},
		"command":     {control.StartRequest{Cwd: "/", Shell: &control.ShellRequest{Args: strings.Fields(strings.Repeat(long(99_999)+" ", 11))}}, []string{"the command has", "1048576"}},
	} {
		started, err := api.Start(t.Context(), []control.StartRequest{c.req})
		if err == nil && started[0].Error != nil {
			err = started[0].Error
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	if n := p.peak(); n > 100 {
		t.Errorf("what was refused took %d MiB", n)
	}
	p.good("stop", "stays")
}

// sizesAnswer: a long answer is kept and read without many copies of it, by those who read it
// again too.
func sizesAnswer(t *testing.T, p *place) {
	const length = 12 << 20
	text := strings.Repeat("The quick brown fox jumps. \n", length/28)
	p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer {
		return modeltest.Text(text)
	}}})
	id := strings.TrimSpace(p.good("-p", "-d", "go").stdout())
	p.good("run", "-d", "--name", "stays", "--", "sleep", "4711")
	p.good("wait", id)
	for range 3 {
		if got := p.good("result", id).stdout(); got != strings.TrimSuffix(text, "\n") {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	}
	p.good("stop", "stays")
}
