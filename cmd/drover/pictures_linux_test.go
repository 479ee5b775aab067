package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

// TestPictures takes the pictures of the terminal UI: real runs in a true terminal, with
// replies of a script. `make pictures` writes them to docs/pictures.
func TestPictures(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("SKIPPED: tmux is not on the PATH, so no pictures are taken")
	}
	bin := build(t)
	for name, take := range map[string]func(*testing.T, *place, *glass){"conversation": pictureTalk, "tasks": pictureTasks} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, bin)
			g := newGlass(t, p)
			take(t, p, g)
			screen := strings.ReplaceAll(g.tmux("capture-pane", "-e", "-p", "-t", "0.0"), p.dir, "~/parser")
			picture := svg(screen, pictureColumns)
			for d := xml.NewDecoder(strings.NewReader(picture)); ; {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("the picture cannot be read: %v", err)
				}
			}
			if os.Getenv("PICTURES") == "" {
				return
			}
			path := filepath.Join("..", "..", "docs", "pictures", name+".svg")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(picture), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

const (
	pictureColumns = 100
	pictureRows    = 34
)

func pictureOpen(g *glass) {
	g.open(strconv.Itoa(pictureColumns), strconv.Itoa(pictureRows), "drover attach --new --permission-mode bypassPermissions")
}

// used is a reply with the tokens that it took.
func used(s step) step {
	return func(r *modeltest.Request) modeltest.Answer {
		a := s(r)
		a.Usage = agent.Usage{InputTokens: 21_400, OutputTokens: 180}
		return a
	}
}

// pictureTalk is a conversation with a command that failed, an edit, and one that passes.
func pictureTalk(_ *testing.T, p *place, g *glass) {
	p.file("parse.go", "package parser\n\nfunc next(s string) int {\n\tat := 1\n\treturn at\n}\n")
	p.file("check.sh", "#!/bin/sh\nif grep -q 'at := 1' parse.go; then\n"+
		"printf 'ok   lexer\\nok   tokens\\n--- FAIL: TestNext: the first rune is skipped\\nFAIL parser\\n'; exit 1; fi\n"+
		"printf 'ok   lexer\\nok   tokens\\nok   parser\\nok   printer\\nall tests pass\\n'\n")
	p.model(map[string][]step{"main": {
		used(calls("Bash", bash("sh check.sh"))),
		used(calls("Read", map[string]any{"file_path": "parse.go"})),
		used(calls("Edit", map[string]any{"file_path": "parse.go", "old_string": "\tat := 1\n", "new_string": "\tat := 0 // the first rune counts\n"})),
		used(calls("Bash", bash("sh check.sh"))),
		used(says("The parser began at the **second** rune. It is fixed:\n\n- `next` starts at `0`\n- all tests pass")),
	}})
	pictureOpen(g)
	g.types("0", "the parser skips the first rune, please fix it")
	g.shows("0", "It is fixed:", "Exit code 1", "+ ", "-esc interrupts")
}

// pictureTasks is the list of tasks: an agent with a command of its own, and commands.
func pictureTasks(_ *testing.T, p *place, g *glass) {
	command := func(line, what string) map[string]any {
		return map[string]any{"command": line, "description": what, "run_in_background": true}
	}
	p.model(map[string][]step{
		"main": {
			used(several("Bash", command("printf 'ready in 312 ms\\n\\n  Local:   http://localhost:5173/\\n  Network: off\\n'; sleep 613", "Serve the site"),
				"Bash", command("printf 'ok   lexer\\nok   tokens\\n'; sleep 614", "Run all tests"),
				"Agent", asks("general-purpose", "Find what calls next()", "run_in_background", true),
				"Bash", command("exit 2", "Check the links"))),
			used(says("Four things run. I tell you what comes of them.")), used(says("The links are broken.")),
		},
		"general-purpose": {used(calls("Bash", map[string]any{"command": "sleep 615", "description": "Search the history"}))},
	})
	pictureOpen(g)
	g.types("0", "start the site and the tests, and find what calls next()")
	g.shows("0", "The links are broken.", "-esc interrupts")
	g.keys("0", "S-Down")
	g.shows("0", "Tasks · 4 running, 1 ended", "✗ failed", "general-purpose · Find", "ready in 312 ms")
}

const (
	cellWide, cellHigh = 8.4, 18.0
	pictureEdge        = 14.0
)

// svg draws the screen of a terminal, with its colours, as a picture.
func svg(screen string, columns int) string {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	var b strings.Builder
	b.WriteString(svgOpen(columns, len(lines)))
	for row, line := range lines {
		drawLine(&b, row, line)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// svgOpen begins a picture.
func svgOpen(columns, rows int) string {
	w, h := float64(columns)*cellWide+2*pictureEdge, float64(rows)*cellHigh+2*pictureEdge
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" `+
		`font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14">`+"\n"+
		`<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", w, h, w, h, pictureGround)
}

// drawLine draws a line of a screen.
func drawLine(b *strings.Builder, row int, line string) {
	column := 0
	for _, s := range spans(line) {
		n := ansi.StringWidth(s.text)
		x, y := pictureEdge+float64(column)*cellWide, pictureEdge+float64(row)*cellHigh
		column += n
		if s.ground != "" {
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, float64(n)*cellWide, cellHigh, s.ground)
		}
		if strings.TrimSpace(s.text) == "" {
			continue
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s"%s xml:space="preserve">`, x, y+13.5, float64(n)*cellWide, s.fill, s.more)
		_ = xml.EscapeText(b, []byte(s.text)) // a builder takes everything
		b.WriteString("</text>\n")
	}
}

const (
	pictureGround = "#1b1f27"
	pictureInk    = "#d8dee9"
)

// span is a text with one look.
type span struct {
	text, fill, ground, more string
}

// spans are the parts of a line that look different.
func spans(line string) (list []span) {
	colours := []string{"#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9"}
	fill, bold, faint, italic, under, reverse := pictureInk, false, false, false, false, false
	for line != "" {
		text := line
		if at := strings.IndexByte(line, '\x1b'); at >= 0 {
			text = line[:at]
		}
		if text != "" {
			s := span{text: text, fill: fill}
			if reverse {
				s.fill, s.ground = pictureGround, fill
			}
			for _, a := range []struct {
				on  bool
				add string
			}{{bold, ` font-weight="bold"`}, {faint, ` opacity="0.6"`}, {italic, ` font-style="italic"`}, {under, ` text-decoration="underline"`}} {
				if a.on {
					s.more += a.add
				}
			}
			list, line = append(list, s), line[len(text):]
			continue
		}
		end := strings.IndexByte(line, 'm')
		if !strings.HasPrefix(line, "\x1b[") || end < 0 { // such as the change of a character set
			line = line[min(len(line), 3):]
			continue
		}
		for word := range strings.SplitSeq(line[2:end], ";") {
			switch n, _ := strconv.Atoi(word); {
			case n == 0:
				fill, bold, faint, italic, under, reverse = pictureInk, false, false, false, false, false
			case n == 1:
				bold = true
			case n == 2:
				faint = true
			case n == 3:
				italic = true
			case n == 4:
				under = true
			case n == 7:
				reverse = true
			case n == 22:
				bold, faint = false, false
			case n == 23:
				italic = false
			case n == 24:
				under = false
			case n == 27:
				reverse = false
			case n >= 30 && n <= 37:
				fill = colours[n-30]
			case n >= 90 && n <= 97:
				fill = colours[n-90]
			case n == 39:
				fill = pictureInk
			}
		}
		line = line[end+1:]
	}
	return list
}
