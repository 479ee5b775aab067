package console

import (
	"strings"
	"testing"
)

// A table is as wide as the terminal at most, counts what a character takes there, and
// keeps the first column and one line for each row.
func TestTableWidth(t *testing.T) {
	rows := [][]string{{"ID", "NAME", "COMMAND"}, {"b12345678", "日本語テスト", strings.Repeat("make 漢字 ", 20)}, {"b87654321", "é", "ls"}}
	for width, want := range map[int]string{
		0: "ID         NAME          COMMAND\nb12345678  日本語テスト  " + strings.Repeat("make 漢字 ", 20) + "\nb87654321  é             ls\n",
		50: "ID         NAME          COMMAND\nb12345678  日本語テスト  make 漢字 make 漢字 make…\n" +
			"b87654321  é             ls\n",
		10: "ID         NAME      COMMAND\nb12345678  日本語…   make 漢…\nb87654321  é         ls\n",
	} {
		got := string(LayOut(rows, width, nil))
		if got != want {
			t.Errorf("in %d columns:\n%swant\n%s", width, got, want)
		}
		for line := range strings.Lines(got) {
			if n := TextWidth(strings.TrimSuffix(line, "\n")); width == 50 && n > width {
				t.Errorf("%q takes %d columns", line, n)
			}
		}
	}
}

// Colours change no width, and end with their cell.
func TestTableColour(t *testing.T) {
	rows := [][]string{{"ID", "STATUS", "X"}, {"b1", "running (idle)", "y"}, {"b2", "failed", "y"}}
	got := string(LayOut(rows, 0, ByState(rows, "STATUS")))
	want := "\x1b[1mID\x1b[0m  \x1b[1mSTATUS\x1b[0m          \x1b[1mX\x1b[0m\n" +
		"b1  \x1b[32mrunning (idle)\x1b[0m  y\nb2  \x1b[31mfailed\x1b[0m          y\n"
	if got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}
