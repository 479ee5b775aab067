package tui

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

func (u *user) click(y int) { u.tell(tea.MouseClickMsg{X: 5, Y: y, Button: tea.MouseLeft}) }

// line is the first line of the screen that begins with a text, behind blanks and marks.
func (u *user) line(text string) int {
	u.t.Helper()
	for i, line := range strings.Split(u.screen(), "\n") {
		if strings.Contains(line, text) {
			return i
		}
	}
	u.t.Fatalf("no %q on the screen:\n%s", text, u.screen())
	return 0
}

// The mouse is the terminal's until the user wants it otherwise; then the wheel scrolls,
// a click chooses and another one opens.
func TestMouse(t *testing.T) {
	w := newWorld()
	u := start(t, 100, 26, w.options)
	u.talk()
	if u.m.View().MouseMode != tea.MouseModeNone {
		t.Error("the mouse is taken from the terminal")
	}
	u.press("alt+m")
	if u.m.View().MouseMode != tea.MouseModeCellMotion {
		t.Error("the mouse is not used")
	}
	u.click(u.line("Bash go test"))
	u.sees("▌ Bash go test")
	u.misses("ok e")
	u.click(u.line("Bash go test"))
	u.sees("ok e")
	u.tell(tea.MouseWheelMsg{Button: tea.MouseWheelUp})
	u.sees("ctrl+end follows")
	u.press("ctrl+end", "shift+down")
	u.team()
	u.click(u.line("Find the parser"))
	u.sees("▸ ● running  explore")
	u.click(u.line("Find the parser"))
	u.sees("> to a1")
	u.press("esc", "esc", "alt+i")
	u.click(u.line("npm init"))
	u.sees("▸ ‖ stalled npm init")
	u.click(u.line("package name"))
	u.sees("enter sends it to the task")
	u.press("esc", "esc")
	u.types("/model")
	u.press("enter")
	u.api.done()
	u.click(u.line("  opus"))
	u.sees("▸ opus")
	u.click(u.line("▸ opus"))
	u.did("configure opus default")
}

// A question is answered by keys alone: a click on an answer gives none.
func TestMouseQuestion(t *testing.T) {
	u := start(t, 100, 20, func(o *Options) { o.Mouse = true })
	u.ask(choiceQuestion())
	u.click(u.line("1. red"))
	u.click(u.line("1. red"))
	u.did("")
	u.sees("Which colour?")
}
