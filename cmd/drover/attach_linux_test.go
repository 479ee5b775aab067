package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/modeltest"
)

// TestAttach takes part in conversations as people do, at terminals of their own.
func TestAttach(t *testing.T) {
	bin := build(t)
	for name, test := range attachments() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// seat is somebody at a terminal in which the program runs.
type seat struct {
	p      *place
	cmd    *exec.Cmd
	person *os.File
	read   int // of text, up to which until has looked

	mu    sync.Mutex
	text  string
	grown chan struct{} // closed and replaced with every piece
	done  chan struct{} // closed when the terminal is read to its end
}

// sits starts the program at a terminal.
func (p *place) sits(args ...string) *seat {
	p.t.Helper()
	return p.sitsWith(p.command(args...))
}

func (p *place) sitsWith(cmd *exec.Cmd) *seat {
	p.t.Helper()
	person, program := terminal(p.t)
	person = unblocked(p.t, person)
	s := &seat{p: p, person: person, cmd: cmd, grown: make(chan struct{}), done: make(chan struct{})}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = program, program, program
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = program.Close()
	go func() { // ends when the program and the test have closed the terminal
		defer close(s.done)
		buf := make([]byte, 64<<10)
		for {
			n, err := person.Read(buf)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.text += strings.ReplaceAll(string(buf[:n]), "\r\n", "\n")
			close(s.grown)
			s.grown = make(chan struct{})
			s.mu.Unlock()
		}
	}()
	return s
}

// until waits for a text behind those that were waited for before.
func (s *seat) until(text string) {
	s.p.t.Helper()
	for {
		s.mu.Lock()
		all, grown := s.text, s.grown
		s.mu.Unlock()
		if i := strings.Index(all[s.read:], text); i >= 0 {
			s.read += i + len(text)
			return
		}
		select {
		case <-grown:
		case <-s.done:
			s.mu.Lock()
			more := len(s.text) > len(all)
			s.mu.Unlock()
			if !more {
				s.p.t.Fatalf("the terminal ended without %q:\n%s", text, all)
			}
		case <-s.p.t.Context().Done():
			s.p.t.Fatalf("no %q on the terminal:\n%s", text, all)
		case <-time.After(patience):
			s.p.t.Fatalf("no %q on the terminal:\n%s", text, all)
		}
	}
}

// types types keys as they are.
func (s *seat) types(keys string) {
	s.p.t.Helper()
	if _, err := s.person.WriteString(keys); err != nil {
		s.p.t.Fatal(err)
	}
}

// leaves waits until the program has ended with a code.
func (s *seat) leaves(code int) {
	s.p.t.Helper()
	err := s.wait()
	if got := exitCode(err); got != code {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.p.t.Errorf("%q ends with %d, want %d:\n%s", s.cmd.Args, got, code, s.text)
	}
}

func (s *seat) wait() error {
	s.p.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }() // ends with the program
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-ended
		s.mu.Lock()
		defer s.mu.Unlock()
		s.p.t.Fatalf("%q does not end:\n%s", s.cmd.Args, s.text)
		return nil
	}
}

// unblocked is the same end of a terminal, whose Close ends a Read.
func unblocked(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	own := os.NewFile(uintptr(fd), "terminal")
	t.Cleanup(func() { _ = own.Close() })
	return own
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
)

// typing pipes lines into the program and waits for its end.
func (p *place) typing(lines string, args ...string) result {
	p.t.Helper()
	return p.startTyping(lines, args...).wait()
}

func (p *place) startTyping(lines string, args ...string) *running {
	p.t.Helper()
	file := p.file(fmt.Sprintf("typed-%p", &lines), lines)
	in, err := os.Open(file)
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close()
	return p.startWith(in, args...)
}

// hosts are the detached hosts of the place.
func (p *place) hosts() []proc {
	return slices.DeleteFunc(marked(p.work), func(r proc) bool { return !strings.HasSuffix(r.line, "drover host") })
}

// session is the one session of a role.
func (p *place) session(role string) string {
	p.t.Helper()
	var all []object
	if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
		p.t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(o object) bool { return o["role"] != role })
	if len(all) != 1 {
		p.t.Fatalf("sessions of role %s: %v", role, all)
	}
	return fmt.Sprint(all[0]["session_id"])
}

// panes are two panes of tmux, if it is there.
func panes(t *testing.T, p *place) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIPPED: tmux is not on the PATH, so nobody attaches in a true terminal multiplexer")
	}
	p.model(map[string][]step{"main": {says("first words"), calls("Bash", bash("touch it")), echo}})
	tmux := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "tmux", append([]string{"-f", "/dev/null", "-S", filepath.Join(p.sockets(), "t")}, args...)...)
		cmd.Dir, cmd.Env = p.dir, append(p.env, "TERM=xterm", "SHELL=/bin/sh")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	shows := func(pane, text string) {
		t.Helper()
		last := ""
		if !within(patience, func() bool {
			last = tmux("capture-pane", "-p", "-J", "-S", "-", "-t", pane)
			return strings.Contains(last, text)
		}) {
			t.Fatalf("pane %s does not show %q:\n%s", pane, text, last)
		}
	}
	tmux("new-session", "-d", "-x", "120", "-y", "40", "drover attach --new --plain", ";", "set-option", "-g", "remain-on-exit", "on")
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", filepath.Join(p.sockets(), "t"), "kill-server").Run() // it may have gone with its last pane
	})
	tmux("send-keys", "-t", "0.0", "good day", "Enter")
	shows("0.0", "first words")
	id := p.session("prompt")
	tmux("split-window", "-t", "0", "drover attach --plain "+id)
	shows("0.1", "> good day")
	tmux("send-keys", "-t", "0.1", "touch it, please", "Enter")
	shows("0.0", "> touch it, please")
	shows("0.0", "Allow command ")
	tmux("send-keys", "-t", "0.0", "/allow", "Enter")
	shows("0.1", "(no output)")
	tmux("send-keys", "-t", "0.1", "C-d") // Ctrl-C would break off the turn, if it is not over yet
	shows("0.1", "drover: left "+id)
	tmux("kill-pane", "-t", "0.0") // a window that is closed
	p.ended(id)
	p.leaves(patience, "drover host")
	if !p.there("it") {
		t.Error("what was allowed did not run")
	}
}

// sockets is the folder of the place whose path is short.
func (p *place) sockets() string {
	for _, kv := range p.env {
		if dir, ok := strings.CutPrefix(kv, "XDG_RUNTIME_DIR="); ok {
			return dir
		}
	}
	return p.work
}

// attachments are tests of who is attached.
func attachments() cases {
	touch := calls("Bash", bash("touch it"))
	return cases{
		"together": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {says("first words"), touch, echo, calls("Bash", later("cat f")), says("it runs"), says("it came back")}})
			fifo := p.fifo("f")
			a := p.sits("attach", "--new", "--permission-mode", "default")
			a.types("good day\n")
			a.until("good day\n")
			a.until("first words")
			id := fmt.Sprint(p.tasks()[0]["task_id"])
			b := p.sits("attach", id)
			b.until("> good day\nfirst words\n")
			a.types("now touch it\n")
			b.until("> now touch it\n")
			a.until("Allow command ")
			b.until("Allow command ")
			b.until("touch it")
			b.types("/allow\n")
			a.until("[= (no output)]")
			b.until("[= (no output)]")
			a.types("and the other\n")
			a.until("cat f started")
			b.until("it runs")
			if !within(patience, func() bool { return p.inspected(id).Idle }) {
				t.Error("it does not rest")
			}
			p.free(fifo)
			a.until("it came back")
			b.until("it came back")
			a.types(ctrlD)
			a.until("drover attach " + id)
			a.leaves(0)
			if !p.there("it") || len(p.hosts()) != 1 {
				t.Errorf("hosts %v", p.hosts())
			}
			b.types("/detach\n")
			b.leaves(0)
			p.leaves(patience, "drover host")
			if rec := p.tasks("-a"); rec[len(rec)-1]["status"] != "completed" {
				t.Errorf("tasks %v", rec)
			}
		},
		"interrupt": func(t *testing.T, p *place) {
			asked, never := make(chan struct{}), make(chan struct{})
			p.model(map[string][]step{"main": {calls("Bash", later("sleep 611")), func(*modeltest.Request) modeltest.Answer {
				close(asked)
				return modeltest.Answer{Wait: never}
			}, says("once more")}})
			s := p.sits("attach", "--new", "--permission-mode", "bypassPermissions")
			s.types("go\n")
			<-asked
			s.types(ctrlC)
			s.until("[Interrupted]")
			p.alive("sleep 611") // a turn is no task
			s.types("again\n")
			s.until("once more")
			p.good("stop", fmt.Sprint(p.tasks()[0]["task_id"]))
			s.until("stopped by the user")
			s.types(ctrlC)
			s.until("drover: left s")
			s.leaves(0)
			p.leaves(patience, "drover")
		},
		"hangup": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {touch, echo}})
			s := p.sits("attach", "--new")
			s.types("go\n")
			s.until("Allow command ")
			if err := s.person.Close(); err != nil { // the program gets a HUP
				t.Fatal(err)
			}
			_ = s.wait()
			var open []object
			if err := json.Unmarshal([]byte(p.good("approvals", "--json").stdout()), &open); err != nil || len(open) != 1 || p.there("it") {
				t.Fatalf("open %v, %v; the file is there: %v", open, err, p.there("it"))
			}
			id := fmt.Sprint(open[0]["session_id"])
			again := p.sits("attach", id)
			again.until("Allow command ")
			again.types("/deny not now\n")
			again.until("not now")
			again.types(ctrlD)
			again.leaves(0)
			p.ended(id)
			if p.there("it") {
				t.Error("what was denied ran")
			}
		},
		"nohost": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {says("a first answer"), says("a second"), says("a third")}})
			p.good("-p", "the first question")
			id := p.session("prompt")
			s := p.sits("attach", id)
			s.until("> the first question\na first answer\n")
			s.types("the second\n")
			s.until("a second")
			s.types(ctrlD)
			s.leaves(0)
			p.leaves(patience, "drover host")
			s = p.sits("--continue")
			s.until("a second")
			s.types("the third\n")
			s.until("a third")
			s.types(ctrlD)
			s.leaves(0)
			if said := texts(t, m.Requests()[2]); count(said, "the first question") != 1 || count(said, "a second") != 1 {
				t.Errorf("said %q", said)
			}
			if got := p.session("prompt"); got != id {
				t.Errorf("sessions %s and %s", id, got)
			}
			p.fails(2, []string{"--continue"}, "not a terminal", "drover attach")
			p.leaves(patience, "drover host")
		},
		"waiting": func(t *testing.T, p *place) {
			asked := make(chan struct{})
			m := p.model(map[string][]step{"main": {func(*modeltest.Request) modeltest.Answer {
				close(asked)
				return modeltest.Answer{Wait: make(chan struct{})}
			}, echo}})
			id := p.good("-p", "-d", "one").stdout()
			<-asked
			p.good("send", id, "two")
			p.killHosts()
			s := p.sits("attach", id)
			s.until("[not answered yet, goes with the next prompt: two]")
			s.types("three\n")
			s.until("three")
			s.types(ctrlD)
			s.leaves(0)
			p.leaves(patience, "drover host")
			said := texts(t, of(m, "main")[1])
			if count(said, "two") != 1 || said[len(said)-1] != "three" || !strings.HasPrefix(said[len(said)-2], "<waiting-prompt>\ntwo\n") {
				t.Errorf("said %q", said)
			}
		},
		"stopped": func(t *testing.T, p *place) {
			flood := strings.Repeat("a line of many words that says nothing\n", 60_000)
			p.model(map[string][]step{"main": {says("hello"), says(flood + "the end"), says("still here")}})
			a := p.sits("attach", "--new")
			a.types("hi\n")
			a.until("hello")
			b := p.sits("attach")
			b.until("hello")
			if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			b.types("flood\n")
			b.until("the end")
			if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			a.until("the end")
			b.types("more\n")
			a.until("still here")
			a.types(ctrlD)
			a.leaves(0)
			b.types(ctrlD)
			b.leaves(0)
			p.leaves(patience, "drover host")
		},
		"foreground": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {touch, echo}})
			r := p.start("-p", "go", "--ask-timeout", "1m")
			id := fmt.Sprint(p.asked(`"tool":"Bash"`)["session_id"])
			p.fails(1, []string{"-p", "more", "--resume", id}, "process", "drover attach "+id, "--fork-session")
			p.fails(1, []string{"-p", "-d", "more", "--resume", id}, "process", "drover attach "+id, "--fork-session")
			s := p.sits("attach", id)
			s.until("Allow command ")
			s.types("/allow\n")
			if res := r.wait(); res.code != 0 || !p.there("it") {
				t.Errorf("exit code %d, %q", res.code, res.stderr)
			}
			s.until("has ended")
			s.leaves(1)
		},
		"kept": func(t *testing.T, p *place) {
			kill := func() { // the next host may be there at once
				if err := syscall.Kill(p.hosts()[0].pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			fifo := p.fifo("f")
			id := p.good("run", "-d", "--keep", "--", "sh", "-c", "echo one; cat f; echo two; exit 7").stdout()
			s := p.sits("attach", id)
			s.until("one\n")
			kill()
			p.free(fifo)
			s.until("go\ntwo\n")
			s.leaves(7)
			s.mu.Lock()
			if n := strings.Count("\n"+s.text, "\none\n"); n != 1 { // a word such as gone may come with the new host
				t.Errorf("what was shown is shown %d times:\n%s", n, s.text)
			}
			s.mu.Unlock()
			id = p.good("run", "-d", "--", "sh", "-c", "echo three; sleep 4793").stdout()
			s = p.sits("attach", id)
			s.until("three\n")
			kill()
			s.until("killed after")
			s.until("its host ")
			s.leaves(4)
		},
		"piped": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Agent", asks("explore", "it", "run_in_background", true)), says("sent off"), says("all is known"), says("more is known")},
				"explore": {says("found")}})
			r := p.typing("look \\\naround\n\n", "attach", "--new")
			if r.code != 0 || !strings.Contains(r.stdout(), "> look \n> around\n") || !strings.Contains(r.stdout(), "\nall is known") /* the line of the end may follow */ {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			id := p.session("prompt")
			if r = p.typing("/nonsense\nmore", "attach", id); r.code != 0 || !strings.Contains(r.stdout(), "no command /nonsense") || !strings.HasSuffix(r.stdout(), "more is known") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			if n := len(of(m, "main")); n != 4 {
				t.Errorf("%d requests", n)
			}
		},
		"given": func(t *testing.T, p *place) {
			asked, free := make(chan struct{}), make(chan struct{})
			m := p.model(map[string][]step{"main": {says("one"), held(free, func(*modeltest.Request) modeltest.Answer {
				close(asked)
				return modeltest.Text("two")
			}), says("three"), says("four")}})
			p.good("-p", "first")
			id := p.session("prompt")
			if got := p.good("-p", "-d", "--resume", id, "second").stdout(); got != id {
				t.Fatalf("printed %q", got)
			}
			<-asked
			hosts := p.hosts()
			if got := p.good("-p", "-d", "--continue", "third").stdout(); got != id {
				t.Errorf("printed %q", got)
			}
			if now := p.hosts(); len(now) != 1 || now[0].pid != hosts[0].pid {
				t.Errorf("hosts %v, then %v", hosts, now)
			}
			close(free)
			if got := p.ended(id); got != "three" {
				t.Errorf("result %q", got)
			}
			p.good("-p", "-d", "--resume", id, "fourth") // its host may be just going away
			if !within(patience, func() bool { return p.run("wait", id).code == 0 && p.run("result", id).stdout() == "four" }) {
				t.Errorf("result %q", p.run("result", id).stdout())
			}
			if said := texts(t, m.Requests()[3]); count(said, "second") != 1 || count(said, "third") != 1 {
				t.Errorf("said %q", said)
			}
			if left, _ := filepath.Glob(filepath.Join(p.work, "state", "projects", "*", ".prompt-*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		},
		"atonce": func(t *testing.T, p *place) {
			free := make(chan struct{})
			const callers = 4
			steps := []step{says("before")}
			for range callers {
				steps = append(steps, held(free, says("answered")))
			}
			m := p.model(map[string][]step{"main": steps})
			p.good("-p", "first")
			id := p.session("prompt")
			var all []*running
			for i := range callers {
				prompt := fmt.Sprintf("prompt %d of many", i)
				if i%2 == 0 {
					all = append(all, p.start("-p", "-d", "--resume", id, prompt))
				} else {
					all = append(all, p.startTyping(prompt+"\n", "attach", id))
				}
			}
			for i := 0; i < callers; i += 2 {
				if r := all[i].wait(); r.code != 0 || r.stdout() != id {
					t.Errorf("caller %d: exit code %d, %q, %q", i, r.code, r.stdout(), r.stderr)
				}
			}
			if hosts := p.hosts(); len(hosts) != 1 {
				t.Errorf("hosts %v", hosts)
			}
			close(free)
			for i := 1; i < callers; i += 2 {
				if r := all[i].wait(); r.code != 0 || !strings.Contains(r.stdout(), "answered") {
					t.Errorf("caller %d: exit code %d, %q, %q", i, r.code, r.stdout(), r.stderr)
				}
			}
			p.ended(id)
			said := texts(t, slices.MaxFunc(m.Requests(), func(x, y *modeltest.Request) int { return len(texts(t, x)) - len(texts(t, y)) }))
			for i := range callers {
				if n := count(said, fmt.Sprintf("prompt %d of many", i)); n != 1 {
					t.Errorf("prompt %d was given %d times: %q", i, n, said)
				}
			}
		},
		"oneprocess": func(t *testing.T, p *place) {
			asked, free := make(chan struct{}, 2), make(chan struct{})
			wait := held(free, func(*modeltest.Request) modeltest.Answer {
				asked <- struct{}{}
				return modeltest.Text("answered")
			})
			m := p.model(map[string][]step{"main": {says("before"), wait, wait}})
			p.good("-p", "first")
			id := p.session("prompt")
			both := []*running{p.start("-p", "--resume", id, "a"), p.start("-p", "--resume", id, "b")}
			<-asked
			refused := slices.IndexFunc(both, func(r *running) bool {
				select {
				case <-r.done:
					return true
				default:
					return false
				}
			})
			if refused < 0 { // it is told in a moment
				select {
				case <-both[0].done:
					refused = 0
				case <-both[1].done:
					refused = 1
				case <-time.After(patience):
					t.Fatal("both are at work")
				}
			}
			both[refused].wait().failed(t, 1, id, "drover attach "+id, "--fork-session")
			close(free)
			if r := both[1-refused].wait(); r.code != 0 || r.stdout() != "answered" || m.Count() != 2 {
				t.Errorf("exit code %d, %q, %q; %d requests", r.code, r.stdout(), r.stderr, m.Count())
			}
		},
		"task": func(t *testing.T, p *place) {
			fifo := p.fifo("f")
			id := p.good("run", "-d", "--", "bash", "-c", "echo one; cat f; printf '\\033[2Jtwo\\n'; exit 7").stdout()
			s := p.sits("attach", id)
			s.until("one\n")
			s.types("hello\n")
			s.until("reads its input from")
			p.free(fifo)
			s.until("go\n")
			s.until("two\n")
			s.until("failed after")
			s.leaves(7)
			if strings.Contains(s.text, "\x1b") {
				t.Errorf("alive: %q", s.text)
			}
			if r := p.typing("", "attach", id[:5]); r.code != 7 || !strings.HasSuffix(r.stdout(), "one\ngo\ntwo") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			p.fails(3, []string{"attach", "b0000000"}, "b0000000")
		},
		"agent": func(t *testing.T, p *place) {
			free := make(chan struct{})
			m := p.model(map[string][]step{"explore": {held(free, calls("Glob", map[string]any{"pattern": "*.txt"})), says("found it")}})
			id := p.good("agent", "run", "-d", "explore", "look").stdout()
			r := p.startTyping("in the cellar too\n", "attach", id)
			if !within(patience, func() bool { return strings.Contains(r.stderr.String(), "sent to "+id) }) {
				t.Fatalf("the message was not sent: %s", r.stderr.String())
			}
			close(free)
			if res := r.wait(); res.code != 0 || !strings.Contains(res.stdout(), "found it") || !strings.Contains(res.stderr, "completed after") {
				t.Errorf("exit code %d, %q, %q", res.code, res.stdout(), res.stderr)
			}
			if said := texts(t, m.Requests()[1]); count(said, "in the cellar too") != 1 {
				t.Errorf("said %q", said)
			}
		},
		"which": func(t *testing.T, p *place) {
			p.fails(3, []string{"attach"}, "no conversation", "--new")
			p.fails(2, []string{"attach", "--new", "x"}, "--new")
			free := make(chan struct{})
			p.model(map[string][]step{"main": {held(free, says("one"))}})
			a, b := p.good("-p", "-d", "first").stdout(), p.good("-p", "-d", "second").stdout()
			if r := p.run("attach"); r.code != 2 || !strings.Contains(r.stdout(), a) || !strings.Contains(r.stdout(), b) {
				t.Errorf("of two live conversations: exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
			close(free)
			p.good("run", "-d", "--name", "long", "sleep", "600")
			r := p.typing("hello\n", "attach", p.session("background"))
			if r.code != 1 || !strings.Contains(r.stdout(), "no main agent") {
				t.Errorf("exit code %d, %q, %q", r.code, r.stdout(), r.stderr)
			}
		},
		"panes": panes,
	}
}
