package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"
)

// A table on a terminal is as wide as that and in colour, unless the user wants none;
// in a pipe it is whole and plain.
func TestTables(t *testing.T) {
	p := newPlace(t, build(t))
	p.good("todo", "add", strings.Repeat("日本語 and more ", 5))
	if piped := p.good("todo").stdout(); !strings.Contains(piped, strings.Repeat("日本語 and more ", 4)) || strings.Contains(piped, "\x1b") {
		t.Errorf("in a pipe: %q", piped)
	}
	const width = 50
	for name, env := range map[string]string{"colour": "TERM=xterm", "plain": "NO_COLOR=1"} {
		t.Run(name, func(t *testing.T) {
			person, program := terminal(t)
			if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}); err != nil {
				t.Fatal(err)
			}
			cmd := p.command("todo")
			cmd.Env = append(cmd.Env, env)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(person)
			head, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			row, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			row = strings.TrimRight(row, "\r\n")
			if n := runewidth.StringWidth(row); n > width || !strings.HasSuffix(row, "…") {
				t.Errorf("a row of %d columns: %q", n, row)
			}
			if coloured := strings.Contains(head, "\x1b[1m"); coloured != (name == "colour") {
				t.Errorf("the head is %q", head)
			}
		})
	}
}
