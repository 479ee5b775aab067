package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/test/modeltest"
)

// TestTerminals runs commands that want a terminal, or are asked something while
// they run.
func TestTerminals(t *testing.T) {
	bin := build(t)
	for _, group := range []cases{terminalTyping(), terminalHosts(), terminalPeople(), terminalAgents()} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, newPlace(t, bin))
			})
		}
	}
}

// on starts a command with a terminal and waits until it has printed a text.
func (p *place) on(until, line string, flags ...string) string {
	p.t.Helper()
	id := p.good(append(append([]string{"run", "-d", "--tty"}, flags...), "--", line)...).stdout()
	p.printed(id, until)
	return id
}

// printed waits until the output of a task holds all texts.
func (p *place) printed(id string, texts ...string) string {
	p.t.Helper()
	out := ""
	if !within(patience, func() bool {
		out = strings.ReplaceAll(p.good("logs", "--raw", id).stdout(), "\r", "")
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return false
			}
		}
		return true
	}) {
		p.t.Fatalf("task %s printed %q, without one of %q", id, out, texts)
	}
	return out
}

// outcome waits for the end of a task and returns its record.
func (p *place) outcome(id string) (o object) {
	p.t.Helper()
	_ = p.run("wait", id)
	if err := json.Unmarshal([]byte(p.good("inspect", id).stdout()), &o); err != nil {
		p.t.Fatal(err)
	}
	return o
}

// nowhere fails if a text is anywhere in what the program keeps.
func (p *place) nowhere(text string) {
	p.t.Helper()
	err := filepath.WalkDir(p.work, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(text)) {
			p.t.Errorf("%s holds what was typed", path)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func terminalTyping() cases {
	return cases{
		// Each of these programs asks in its own way.
		"asked": func(t *testing.T, p *place) {
			id := p.on("name? ", "test -t 0 && test -t 1 && stty size && echo $TERM; read -p 'name? ' x; echo \"<$x>\"; exit 7")
			p.good("send", id, "ann")
			if o := p.outcome(id); o["exit_code"] != float64(7) || o["tty"] != true {
				t.Errorf("%v", o)
			}
			if got := p.printed(id, "<ann>"); got != "24 80\ndumb\nname? ann\n<ann>" {
				t.Errorf("printed %q", got)
			}
		},
		"keys": func(t *testing.T, p *place) {
			id := p.on("ready", "trap 'echo caught' INT; echo ready; cat; echo cat $?; read -n 1 -s x; echo \"one $x\"")
			p.good("send", "--raw", id, "no end")
			p.good("send", id, " of line")
			p.printed(id, "no end of line\nno end of line")
			p.good("send", "--key", "ctrl-d", id)
			p.printed(id, "cat 0")
			p.good("send", "--raw", id, "y")
			if o := p.outcome(id); o["status"] != "completed" {
				t.Errorf("%v", o)
			}
			p.printed(id, "one y")
		},
		"interrupted": func(t *testing.T, p *place) {
			id := p.on("ready", "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done")
			p.good("send", "--key", "ctrl-c", id)
			if o := p.outcome(id); o["exit_code"] != float64(5) {
				t.Errorf("%v", o)
			}
			p.printed(id, "^C", "caught")
		},
		// A password is on no disk, and on no list of processes.
		"password": func(t *testing.T, p *place) {
			id := p.on("Password: ", "read -s -p 'Password: ' x; echo; echo ${#x} characters; read -p 'Again: ' y; exit 0")
			const secret = "hunter2-correct-horse"
			cmd := p.command("send", id, "-")
			cmd.Stdin = strings.NewReader(secret + "\n")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p.printed(id, fmt.Sprint(len(secret), " characters"))
			p.nowhere(secret)
			p.good("stop", id)
			p.nowhere(secret)
		},
		"python": func(t *testing.T, p *place) {
			if p.run("run", "--", "python3", "-c", "pass").code != 0 {
				t.Skip("there is no python3 here")
			}
			id := p.on("who? ", `python3 -c 'import sys; print(sys.stdin.isatty(), flush=True); print("hello", input("who? "))'`)
			p.good("send", id, "bob")
			p.printed(id, "True\n", "hello bob")
		},
		"refused": func(t *testing.T, p *place) {
			id := p.good("run", "-d", "--", "exec sleep 1000").stdout()
			p.fails(1, []string{"send", id, "x"}, "/dev/null", "--tty")
			p.fails(1, []string{"send", "--key", "enter", id}, "--tty")
			p.good("stop", id)
			id = p.on("ready", "echo ready; exec sleep 1000")
			p.fails(1, []string{"send", id, strings.Repeat("x", 5000)}, "4096")
			p.fails(2, []string{"send", "--key", "hyper-x", id}, "hyper-x")
			p.fails(2, []string{"send", id}, "no message")
			p.good("stop", id)
			p.fails(1, []string{"send", id, "x"}, "killed")
			p.fails(2, []string{"run", "--tty", "--batch", "-"}, "--batch")
		},
		// Paused, it reads nothing; what was typed waits for it.
		"paused": func(t *testing.T, p *place) {
			id := p.on("name? ", "read -p 'name? ' x; echo \"<$x>\"")
			p.good("pause", id)
			p.good("send", id, "ann")
			p.good("resume", id)
			if o := p.outcome(id); o["status"] != "completed" {
				t.Errorf("%v", o)
			}
			p.printed(id, "<ann>")
		},
		"capped": func(t *testing.T, p *place) {
			p.file("../config/drover/settings.json", `{"tasks":{"outputLimitBytes":100000}}`)
			id := p.good("run", "-d", "--tty", "--", "yes").stdout()
			if o := p.outcome(id); o["cause"].(map[string]any)["reason"] != "output_limit" {
				t.Errorf("%v", o["cause"])
			}
		},
	}
}

// background is the process of the detached host.
func (p *place) background() int {
	p.t.Helper()
	pid := 0
	if !within(patience, func() bool {
		var all []object
		if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil {
			p.t.Fatal(err)
		}
		for _, s := range all {
			if s["role"] == "background" && s["live"] == true {
				pid = int(s["pid"].(float64))
			}
		}
		return pid > 0
	}) {
		p.t.Fatal("there is no detached host")
	}
	return pid
}

func terminalHosts() cases {
	return cases{
		// A kept command is typed into after its host was killed, and keeps its exit.
		"kept": func(t *testing.T, p *place) {
			id := p.on("one? ", "read -p 'one? ' x; echo \"<$x>\"; read -p 'two? ' y; echo \"<$y>\"; exit 6", "--keep")
			if err := syscall.Kill(p.background(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if !within(patience, func() bool { return p.run("run", "-d", "--", "true").code == 0 }) { // a next host
				t.Fatal("there is no next host")
			}
			if !within(patience, func() bool { return p.run("send", id, "ann").code == 0 }) {
				t.Fatal("nobody types into the kept command")
			}
			p.printed(id, "two? ")
			p.good("send", id, "bob")
			if o := p.outcome(id); o["exit_code"] != float64(6) {
				t.Errorf("%v", o)
			}
			if got := p.printed(id, "<bob>"); got != "one? ann\n<ann>\ntwo? bob\n<bob>" {
				t.Errorf("printed %q", got)
			}
			if keys, _ := filepath.Glob(filepath.Join(p.work, "state", "projects", "*", "*", "tasks", "*.keys")); len(keys) > 0 {
				t.Errorf("left: %v", keys)
			}
		},
		// Any other goes with its host, whoever holds its terminal too.
		"gone with the host": func(t *testing.T, p *place) {
			id := p.on("ready", "trap '' HUP TERM; echo ready; sleep 1000")
			if err := syscall.Kill(p.background(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.leaves(patience, "--tty")
			p.leaves(patience, "sleep 1000")
			if o := p.outcome(id); o["status"] != "killed" || o["cause"].(map[string]any)["reason"] != "host_lost" {
				t.Errorf("%v", o)
			}
		},
		"terminal lost": func(t *testing.T, p *place) {
			id := p.on("ready", "trap '' HUP; echo ready; exec sleep 1000")
			for _, proc := range marked(p.work) {
				if strings.Contains(proc.line, " --tty") {
					if err := syscall.Kill(proc.pid, syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
			}
			if o := p.outcome(id); o["status"] != "failed" || o["cause"].(map[string]any)["reason"] != "terminal_lost" {
				t.Errorf("%v", o)
			}
		},
	}
}

// person is somebody at a terminal, who sees what is printed there.
type person struct {
	f  *os.File
	mu sync.Mutex
	b  []byte // guarded by mu
}

func (s *person) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.b)
}

func sit(f *os.File) *person {
	s := &person{f: f}
	go func() { // ends with the terminal
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			s.mu.Lock()
			s.b = append(s.b, buf[:n]...)
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *person) sees(t *testing.T, text string) {
	t.Helper()
	if !within(patience, func() bool { return strings.Contains(s.text(), text) }) {
		t.Fatalf("no %q on the terminal: %q", text, s.text())
	}
}

func terminalPeople() cases {
	return cases{
		// Stdin that is no terminal is typed, and its end is ^D.
		"piped": func(t *testing.T, p *place) {
			cmd := p.command("run", "--tty", "--", "cat; tty >/dev/null && echo over")
			cmd.Stdin = strings.NewReader("one\ntwo")
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "two") != 2 || !strings.HasSuffix(string(out), "over\r\n") {
				t.Errorf("%v: %q", err, out)
			}
			if r := p.run("run", "--tty", "--", "exit 3"); r.code != 3 {
				t.Errorf("exit code %d: %s", r.code, r.stderr)
			}
		},
		// At a terminal the keys are the command's, with its size and its ^C, and the
		// terminal is afterwards as it was.
		"seated": func(t *testing.T, p *place) {
			master, slave := terminal(t)
			if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 99}); err != nil {
				t.Fatal(err)
			}
			before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			cmd := p.command("run", "--tty", "--", "echo $TERM; stty size; trap 'stty size' WINCH; trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done")
			cmd.Env = append(cmd.Env, "TERM=vt220")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			who := sit(master)
			who.sees(t, "vt220\r\n33 99\r\nready\r\n")
			if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 70}); err != nil {
				t.Fatal(err)
			}
			who.sees(t, "20 70\r\n")
			if _, err := master.WriteString("\x03"); err != nil {
				t.Fatal(err)
			}
			if got := exitCode(cmd.Wait()); got != 4 {
				t.Errorf("exit code %d", got)
			}
			who.sees(t, "caught\r\n")
			after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("the terminal is %+v, was %+v, %v", after, before, err)
			}
		},
		// However it ends: the terminal is given back when drover itself is told to go.
		"ended": func(t *testing.T, p *place) {
			master, slave := terminal(t)
			before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			cmd := p.command("run", "--tty", "--", "echo ready; exec sleep 1000")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			sit(master).sees(t, "ready")
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("the terminal is %+v, was %+v, %v", after, before, err)
			}
			p.leaves(0, "sleep 1000")
		},
	}
}

func onTTY(line string) object {
	return object{"command": line, "run_in_background": true, "tty": true, "description": "asks"}
}

func terminalAgents() cases {
	watch := object{"tasks": object{"stallAfter": "300ms"}}
	return cases{
		// The model is told that its command asks, and how to answer; it does.
		"answers": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {
				calls("Bash", onTTY("read -p 'Continue? [y/N] ' x; echo \"got <$x>\"")),
				says("started"),
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("SendMessage", object{"to": found(r, `ID: (b[0-9a-z]{8})\b`), "message": "y"})
				},
				says("typed"),
				says("done"),
			}})
			r := p.run("-p", "go", "--permission-mode=bypassPermissions", set(t, watch))
			if r.code != 0 {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			told := strings.Join(texts(t, of(m, "main")[2]), "\n")
			holds(t, "what it is told", told, "waits for an answer", "Continue? [y/N]", "SendMessage")
			all := p.tasks("-a")
			if len(all) != 1 || all[0]["exit_code"] != float64(0) {
				t.Fatalf("%v", all)
			}
			p.printed(fmt.Sprint(all[0]["task_id"]), "got <y>")
		},
		// The kernel sees what no text shows. It is told once.
		"silent": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {
				calls("Bash", onTTY("echo hello; exec cat")),
				says("started"),
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("TaskStop", object{"task_id": found(r, `ID: (b[0-9a-z]{8})\b`)})
				},
				says("stopped"),
			}})
			r := p.run("-p", "go", "--permission-mode=bypassPermissions", set(t, watch))
			if r.code != 0 {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			holds(t, "what it is told", strings.Join(texts(t, of(m, "main")[2]), "\n"), "reads its terminal", "SendMessage")
		},
		// A terminal is not allowed by a rule for one command, nor by reading only.
		"permission": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {calls("Bash", onTTY("git log")), says("well")}})
			r := p.run("-p", "go", "--allowed-tools=Bash(git log:*)")
			if r.code != 0 {
				t.Fatalf("exit code %d, stderr %q", r.code, r.stderr)
			}
			holds(t, "the answer", strings.Join(texts(t, of(m, "main")[1]), "\n"), "gets a terminal", "permission")
		},
		// What a rule denies is not typed.
		"denied": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {
				calls("Bash", onTTY("read x; echo got")),
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("SendMessage", object{"to": found(r, `ID: (b[0-9a-z]{8})\b`), "message": "rm -rf /"})
				},
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("TaskStop", object{"task_id": found(r, `ID: (b[0-9a-z]{8})\b`)})
				},
				says("stopped"),
			}})
			r := p.run("-p", "go", "--permission-mode=bypassPermissions", "--disallowed-tools=Bash(rm:*)")
			if r.code != 0 {
				t.Fatalf("exit code %d, stderr %q", r.code, r.stderr)
			}
			holds(t, "the answer", strings.Join(texts(t, of(m, "main")[2]), "\n"), "Bash(rm:*)", "not typed")
		},
		// To a command without a terminal the refusal says what to do.
		"deaf": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {
				calls("Bash", later("exec sleep 1000")),
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("SendMessage", object{"to": found(r, `ID: (b[0-9a-z]{8})\b`), "message": "y"})
				},
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("TaskStop", object{"task_id": found(r, `ID: (b[0-9a-z]{8})\b`)})
				},
				says("stopped"),
			}})
			if r := p.run("-p", "go", "--permission-mode=bypassPermissions"); r.code != 0 {
				t.Fatalf("exit code %d, stderr %q", r.code, r.stderr)
			}
			holds(t, "the answer", strings.Join(texts(t, of(m, "main")[2]), "\n"), "without a terminal", "tty")
		},
	}
}
