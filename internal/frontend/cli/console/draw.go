package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Terminal is a terminal that a command has for itself.
type Terminal struct {
	Keys    <-chan byte // typed keys; closed with the terminal
	Resized <-chan os.Signal
	Size    func() (columns, rows int)
	Close   func() // gives the terminal back as it was
}

const (
	drawRest = 100 * time.Millisecond // between two frames
	ageTick  = time.Second            // between frames while something runs

	enterScreen = "\x1b[?1049h\x1b[?25l" // the other screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// Frame is what a screen shows: lines that fit in its columns.
type Frame struct {
	Lines []string
	Ticks bool // it changes with time alone
}

// Drawing shows frames in place. Look reads the content, and View makes a frame of the content that was
// read last.
type Drawing struct {
	Look    func(context.Context) error
	View    func(columns int) Frame
	Changed <-chan struct{} // look again
}

// Draw shows frames until the user leaves by q or Ctrl-C, or ctx ends. It writes changed lines only.
func (a *Console) Draw(ctx context.Context, d Drawing) (err error) {
	s, err := a.OpenTerminal()
	if err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	defer s.Close()
	if _, err := a.Stdout.Write([]byte(enterScreen)); err != nil {
		return err
	}
	defer func() {
		_, left := a.Stdout.Write([]byte(leaveScreen))
		err = errors.Join(err, left)
	}()
	tick := time.NewTicker(ageTick)
	defer tick.Stop()
	var shown []string
	for look := true; ; {
		if look {
			if err := d.Look(ctx); err != nil {
				return err
			}
		}
		columns, rows := s.Size()
		f := d.View(columns)
		next := fitted(f.Lines, rows)
		if out := redraw(shown, next); len(out) > 0 {
			if _, err := a.Stdout.Write(out); err != nil {
				return err
			}
		}
		shown = next
		ticks := tick.C
		if !f.Ticks {
			ticks = nil
		}
		if look {
			pause(ctx, drawRest)
		}
		select {
		case key, ok := <-s.Keys:
			if !ok || key == 'q' || key == 'Q' || key == 3 {
				return nil
			}
			look = false
		case <-s.Resized:
			look, shown = false, nil
		case <-d.Changed:
			look = true
		case <-ticks:
			look = false
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// fitted cuts lines to the rows of a screen; the last line gives the number of hidden ones.
func fitted(lines []string, rows int) []string {
	if rows <= 0 || len(lines) <= rows {
		return lines
	}
	cut := append([]string{}, lines[:rows-1]...)
	return append(cut, fmt.Sprintf("… %d more lines", len(lines)-rows+1))
}

// redraw returns the bytes that turn the shown lines into the next ones. With nil the content of the
// screen is unknown.
func redraw(shown, next []string) []byte {
	var b bytes.Buffer
	if shown == nil {
		b.WriteString("\x1b[H\x1b[2J")
	}
	for i, line := range next {
		if i < len(shown) && shown[i] == line {
			continue
		}
		fmt.Fprintf(&b, "\x1b[%d;1H%s\x1b[0m\x1b[K", i+1, line)
	}
	if len(shown) > len(next) {
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[J", len(next)+1)
	}
	return b.Bytes()
}

// SplitLines cuts a text into lines of at most so many columns. Color sequences take no column.
func SplitLines(text string, columns int) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = Clip(line, columns)
	}
	return lines
}

func Clip(line string, columns int) string {
	if columns <= 0 {
		return line
	}
	var b strings.Builder
	used := 0
	for len(line) > 0 {
		if strings.HasPrefix(line, "\x1b[") {
			if end := strings.IndexByte(line, 'm'); end > 0 {
				b.WriteString(line[:end+1])
				line = line[end+1:]
				continue
			}
		}
		_, n := utf8.DecodeRuneInString(line)
		if width := TextWidth(line[:n]); used+width <= columns {
			used += width
			b.WriteString(line[:n])
		} else {
			used = columns // nothing follows a wide character that does not fit
		}
		line = line[n:]
	}
	return b.String()
}
