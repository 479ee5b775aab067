package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// TestMovingPicture takes the picture of the README: the job of `drover demo` in the terminal UI, in a true
// terminal. `make pictures` writes it to docs/pictures.
func TestMovingPicture(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIPPED: tmux is not on the PATH, so no pictures are taken")
	}
	p := newPlace(t, build(t))
	script, err := filepath.Abs("../../internal/assemble/demo/script.yaml")
	if err == nil {
		err = os.CopyFS(p.dir, os.DirFS("../../internal/assemble/demo/project"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main", "."}, {"config", "user.name", "you"}, {"config", "user.email", "you@localhost"},
		{"add", "."}, {"commit", "-qm", "Sum of an order"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = p.dir, p.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	config := filepath.Join(p.work, "config", "drover")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	rules := `{"permissions": {"allow": ["Bash(sh serve.sh)", "Bash(sh test.sh)", "Bash(sleep 1)", "Bash(git commit:*)"]}}`
	if err := os.WriteFile(filepath.Join(config, "settings.json"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGlass(t, p)
	f := &film{g: g, begun: time.Now(), home: p.dir}
	g.open(strconv.Itoa(filmColumns), strconv.Itoa(filmRows),
		"drover attach --new --model script:"+script)
	f.until("Ask Drover|what is to be done")
	for word := range strings.FieldsSeq("The tests fail. Find out why, have it fixed and reviewed.") {
		g.keys("0", "-l", word+" ")
		f.until(word)
	}
	g.keys("0", "Enter")
	f.until("1. Allow once")
	f.rest(2 * time.Second)
	g.keys("0", "Enter")
	f.until("reviewer agrees")
	f.rest(time.Second)
	g.keys("0", "S-Down")
	f.until("Tasks ·")
	f.rest(3 * time.Second)
	picture := f.svg()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the picture cannot be read: %v", err)
		}
	}
	if len(picture) > 150_000 {
		t.Errorf("the picture has %d bytes", len(picture))
	}
	if os.Getenv("PICTURES") == "" {
		return
	}
	if err := os.WriteFile("../../docs/pictures/demo.svg", []byte(picture), 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	filmColumns = 100
	filmRows    = 30
	// still is the longest time for which a film shows one screen.
	still = 3 * time.Second
)

// film is a row of screens.
type film struct {
	g      *glass
	begun  time.Time
	home   string
	shots  []shot
	paused time.Duration // left out so far
}

type shot struct {
	at    time.Duration
	lines []string
}

// shoot takes the screen if it has changed, and returns its text.
func (f *film) shoot() string {
	screen := strings.ReplaceAll(f.g.tmux("capture-pane", "-e", "-p", "-t", "0.0"), f.home, "~/shop")
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	at := time.Since(f.begun) - f.paused
	if n := len(f.shots); n == 0 {
		f.begun, at = time.Now(), 0
	} else if slices.Equal(f.shots[n-1].lines, lines) {
		return ansi.Strip(screen)
	} else if long := at - f.shots[n-1].at; long > still {
		f.paused += long - still
		at -= long - still
	}
	f.shots = append(f.shots, shot{at, lines})
	return ansi.Strip(screen)
}

// until films until the screen shows one of the texts between bars.
func (f *film) until(texts string) {
	f.g.t.Helper()
	seen := ""
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		seen = f.shoot()
		if slices.ContainsFunc(strings.Split(texts, "|"), func(text string) bool { return strings.Contains(seen, text) }) {
			return
		}
	}
	f.g.t.Fatalf("the screen does not show %q:\n%s", texts, seen)
}

// rest films for a time.
func (f *film) rest(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		f.shoot()
	}
}

// svg draws the film. A line of the screen is drawn once for each time in which it stays the same; without
// animation the last screen is seen.
func (f *film) svg() string {
	whole := f.shots[len(f.shots)-1].at + still
	type stay struct{ from, to time.Duration }
	names := map[stay]int{}
	var style, body strings.Builder
	for row := range filmRows {
		for i := 0; i < len(f.shots); {
			line, from := f.shots[i].line(row), f.shots[i].at
			for i < len(f.shots) && f.shots[i].line(row) == line {
				i++
			}
			s := stay{from, whole}
			if i < len(f.shots) {
				s.to = f.shots[i].at
			}
			var drawn strings.Builder
			drawLine(&drawn, row, line)
			if drawn.Len() == 0 {
				continue
			}
			if s == (stay{0, whole}) {
				body.WriteString(drawn.String())
				continue
			}
			n, known := names[s]
			if !known {
				n = len(names)
				names[s] = n
				percent := func(d time.Duration) float64 { return 100 * d.Seconds() / whole.Seconds() }
				fmt.Fprintf(&style, "@keyframes k%d{0%%{opacity:%d}", n, map[bool]int{true: 1}[s.from == 0])
				if s.from > 0 {
					fmt.Fprintf(&style, "%.2f%%{opacity:1}", percent(s.from))
				}
				if s.to < whole {
					fmt.Fprintf(&style, "%.2f%%{opacity:0}", percent(s.to))
				}
				fmt.Fprintf(&style, "100%%{opacity:%d}}\n.k%d{animation-name:k%d}\n", map[bool]int{true: 1}[s.to == whole], n, n)
			}
			last := ""
			if s.to == whole {
				last = " z"
			}
			fmt.Fprintf(&body, "<g class=\"k k%d%s\">\n%s</g>\n", n, last, drawn.String())
		}
	}
	return svgOpen(filmColumns, filmRows) + fmt.Sprintf(
		"<style>.k{opacity:0}.z{opacity:1}\n@media (prefers-reduced-motion:no-preference){.k{animation:%.1fs step-end infinite}\n%s}</style>\n",
		whole.Seconds(), style.String()) + body.String() + "</svg>\n"
}

func (s shot) line(row int) string {
	if row < len(s.lines) {
		return s.lines[row]
	}
	return ""
}
