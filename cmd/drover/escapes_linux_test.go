package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"
)

// sequences are what a terminal would obey, or what hides text from a reader. Each
// stands between letters, so that a name of it is not empty.
func sequences() []string {
	raw := []string{
		"\x1b[2J", "\x1b[H", "\x1bc", "\x1b[3J", "\x1b[31m", "\x1b[0m", "\x1b[8m", "\x1b[1;31;40m", "\x1b[38;5;196m", "\x1b[?25l",
		"\x1b[?1049h", "\x1b[?1049l", "\x1b[?2004h", "\x1b[200~", "\x1b[201~", "\x1b[6n", "\x1b[c", "\x1b[>c", "\x1b[5n", "\x1b[21t",
		"\x1b]0;title\x07", "\x1b]2;title\x1b\\", "\x1b]52;c;ZXZpbA==\x07", "\x1b]52;c;?\x07", "\x1b]8;;http://x.invalid\x1b\\link\x1b]8;;\x1b\\",
		"\x1b]4;1;?\x07", "\x1b]10;?\x07", "\x1b]1337;File=:AAAA\x07", "\x1b]9;note\x07", "\x1b]777;notify;a;b\x07",
		"\x1bPq#0\x1b\\", "\x1bP$qm\x1b\\", "\x1bP+q544e\x1b\\", "\x1b_Gi=1;\x1b\\", "\x1b^private\x1b\\", "\x1bXstring\x1b\\",
		"\x1b(0", "\x1b)B", "\x1b#8", "\x1b=", "\x1b7\x1b8", "\x1b[1A\x1b[2K", "\x1b[10;10H", "\x1b[?1000h", "\x1b[4i", "\x1b[20h",
		"\u009b31m", "\u009d0;title\u009c", "\u0090q\u009c", "\u0085", "\x07", "\b\b\b", "\roverwritten", "\x0e", "\x0f", "\x7f", "\x05", "\v", "\f",
		"\x1b", "\u202eevil\u202c", "\u2066a\u2069", "\u200b", "\u200d", "\ufeff", "\u2028", "\u00ad", "\U000e0041",
	}
	for i, s := range raw {
		raw[i] = fmt.Sprintf("q%d%sz", i, s)
	}
	return raw
}

// live finds what a terminal would obey, or a reader not see.
func live(text string) string {
	for i, r := range text {
		switch {
		case r == '\n' || r == '\t':
		case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			return fmt.Sprintf("%U in %q", r, text[max(0, i-40):min(len(text), i+40)])
		}
	}
	return ""
}

func harmless(t *testing.T, what, text string) {
	t.Helper()
	if bad := live(text); bad != "" {
		t.Errorf("%s: %s", what, bad)
	}
}

// TestEscapes: whatever text comes in, nothing live comes out, on whatever way.
func TestEscapes(t *testing.T) {
	bin := build(t)
	ways := cases{"tables": escapesTables, "errors": escapesErrors, "terminal": escapesTerminal, "model": escapesModel, "settings": escapesSettings}
	for name, test := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}

// escapesTables: names, descriptions, command lines and output of tasks.
func escapesTables(t *testing.T, p *place) {
	var batch bytes.Buffer
	for _, s := range sequences() {
		line, err := json.Marshal(map[string]any{"name": s, "description": s, "args": []string{"printf", "%s\n", s}})
		if err != nil {
			t.Fatal(err)
		}
		batch.Write(append(line, '\n'))
	}
	ids := p.good("run", "--batch", p.file("batch", batch.String())).lines
	if len(ids) != len(sequences()) {
		t.Fatalf("%d tasks of %d", len(ids), len(sequences()))
	}
	for _, args := range [][]string{append([]string{"wait"}, ids...), append([]string{"wait", "--json"}, ids...), {"ps", "-a"}, {"ps", "-a", "--tree"}, {"ps", "-a", "--json"},
		append([]string{"stop"}, ids...), append([]string{"stop", "--json"}, ids...), {"sessions"}, {"sessions", "--json"}, {"approvals"}, {"approvals", "--json"}} {
		r := p.run(args...)
		harmless(t, fmt.Sprint(args[:min(2, len(args))]), r.stdout()+r.stderr)
	}
	for i, id := range ids {
		for _, verb := range []string{"inspect", "result"} {
			args := []string{verb, "--json", id}
			r := p.run(args...)
			harmless(t, verb+" of "+fmt.Sprintf("%q", sequences()[i]), r.stdout()+r.stderr)
			if verb == "inspect" { // nothing is lost of it
				var rec struct{ Name string }
				if err := json.Unmarshal([]byte(r.stdout()), &rec); err != nil || rec.Name != sequences()[i] {
					t.Errorf("the name %q came back as %q, %v", sequences()[i], rec.Name, err)
				}
			}
		}
	}
}

// escapesErrors: what is repeated in an error line.
func escapesErrors(t *testing.T, p *place) {
	all := sequences()
	for i, s := range all {
		forms := [][]string{{"inspect", s}, {"run", "--", s}, {"sessions", "rm", s}, {"wait", "--timeout", s, "x"}, {s}, {"logs", s}, {"run", "--" + s}, {"stop", s},
			{"agent", "run", s, "x"}, {"workflow", "run", s}, {"permissions", "check", s, "{}"}, {"send", s, s}, {"attach", s}, {"teleport", "import", s}, {"mcp", "add", s, "--", "x"},
			{"todo", "set", s, "status=done"}, {"trust", s}, {"sessions", "rm", "--old=" + s}, {"monitor", "--", s}, {"approvals", "deny", s}, {"-p", "x", "--model", s}, {"agents", "check", s}}
		// Each form sees every third sequence, and each sequence a third of the forms.
		for n, args := range forms {
			if (i+n)%3 == 0 {
				r := p.run(args...)
				harmless(t, fmt.Sprintf("%q", args), r.stdout()+r.stderr)
			}
		}
	}
}

// escapesTerminal: what a person sees of output and of answers.
func escapesTerminal(t *testing.T, p *place) {
	all := p.file("all", strings.Join(sequences(), "\n")+"\n")
	answer := says(strings.Join(sequences(), "\n"))
	p.model(map[string][]step{"main": {answer}, "general-purpose": {answer}})
	p.good("run", "-d", "--name", "noisy", "--", "cat", all)
	p.good("wait", "noisy")
	for _, args := range [][]string{{"logs", "noisy"}, {"logs", "-f", "noisy"}, {"result", "noisy"}, {"-p", "go"}, {"agent", "run", "general-purpose", "go"}, {"ps", "-a"}} {
		person, program := terminal(t)
		cmd := p.command(args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
		cmd.Env = append(slices.Clone(p.env), "NO_COLOR=1", "TERM=xterm")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = program.Close()
		seen, _ := io.ReadAll(person) // a terminal that nobody has open any more is an error to read
		_ = person.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v\n%q", args, err, seen)
		}
		if !strings.Contains(string(seen), "q4") && args[0] != "ps" {
			t.Errorf("%q shows nothing: %.200q", args, seen)
		}
		text := strings.ReplaceAll(string(seen), "\r\n", "\n")
		if args[0] == "-p" { // an answer keeps what joins letters and emoji
			text = strings.NewReplacer("\u200d", "", "\u00ad", "").Replace(text)
		}
		harmless(t, fmt.Sprint(args), text)
	}
}

// escapesModel: what a model is told of tasks, their output, and files.
func escapesModel(t *testing.T, p *place) {
	all := strings.Join(sequences(), " ")
	p.file("all", strings.Join(sequences(), "\n"))
	p.file(".drover/agents/odd.md", "---\nname: odd\ndescription: "+fmt.Sprintf("%q", all)+"\n---\nx\n")
	s := p.model(map[string][]step{"main": {
		calls("Bash", map[string]any{"command": "cat all; exit 3", "description": all, "run_in_background": true}),
		calls("Bash", bash("cat all; echo err >&2; cat all >&2; false")),
		calls("ListTasks", map[string]any{}),
		says("one"), says("two"), says("three"),
	}})
	r := p.run("-p", "go", "--allowed-tools", "Bash", "--trust")
	if r.code != 0 {
		t.Fatalf("%d: %s", r.code, r.stderr)
	}
	told, seen := 0, ""
	for _, req := range s.Requests() {
		for _, text := range texts(t, req) {
			if strings.Contains(text, "q66") {
				told++
			}
			harmless(t, "told to the model", text)
			seen += text + "\n"
		}
	}
	if told < 3 {
		t.Errorf("the model has seen %d of the texts:\n%.3000s", told, seen)
	}
	harmless(t, "stderr", r.stderr)
}

// escapesSettings: what is said of files.
func escapesSettings(t *testing.T, p *place) {
	set := map[string]any{}
	for _, s := range sequences() {
		set[s] = 1
	}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.work, "config", "drover")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "--", "true"}, {"doctor"}, {"doctor", "--json"}, {"ps"}, {"agents"}, {"agents", "check"}, {"mcp", "list"}, {"todo", "list"}, {"stats"}, {"sessions"}} {
		r := p.run(args...)
		harmless(t, fmt.Sprint(args), r.stdout()+r.stderr)
	}
}
